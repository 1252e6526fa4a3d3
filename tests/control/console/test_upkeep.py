"""What is past its time is deleted, and nothing else."""

from __future__ import annotations

from control.console.upkeep import forget_console
from tests.control.console.browser import Town


async def test_only_what_opens_nothing_any_more_is_forgotten(town: Town) -> None:
    member_id, _ = await town.member()
    live, dead = await town.link("invitation", member_id), await town.link("invitation", member_id, lives="-1 second")
    async with town.signed_in() as browser, town.signed_in() as ended:
        ids = [(await each.ask("GET", "/console/api/session")).signed_in["session"]["id"] for each in (browser, ended)]
        await town.database.execute("UPDATE gateway.console_sessions SET expires_at = now() WHERE id = $1", ids[1])
        await town.database.execute(
            "INSERT INTO gateway.console_attempts VALUES"
            " ('old', 9, now() - interval '25 hours', now()), ('new', 9, now(), now())"
        )
        await forget_console(town.database)
        rows = await town.database.fetch(
            "SELECT id::text FROM gateway.console_sessions WHERE id = ANY ($1::uuid[])", ids
        )
        assert [row["id"] for row in rows] == ids[:1]
        assert (await browser.ask("GET", "/admin/v1/me")).status == 200
        found = await town.database.fetch("SELECT subject FROM gateway.console_attempts WHERE failures = 9")
        assert [row["subject"] for row in found] == [b"new"]
        for token, status in ((live, 200), (dead, 400)):
            assert (await browser.ask("POST", "/console/api/welcome/preview", {"token": token})).status == status
