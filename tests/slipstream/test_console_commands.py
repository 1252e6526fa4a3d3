"""`slipstream console`: links that open once, printed with the address they lead to, and what is said of accounts."""

from __future__ import annotations

from typing import Any

import asyncpg

from slipstream.commands.console import has_screen
from tests.slipstream.shell import Shell


async def test_links_and_accounts_from_the_first_one_on(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    first = (await shell.must("console", "open", "--no-browser")).splitlines()[-1]
    assert first.startswith("http://127.0.0.1:")
    assert "/console/#/welcome?token=" in first
    invited = (await shell.must("console", "link", "ada@example.com", "--role", "admin")).splitlines()[-1]
    assert invited.partition("?token=")[0] == first.partition("?token=")[0]
    await connection.execute(
        "INSERT INTO gateway.console_accounts (principal_id, password_hash)"
        " SELECT id, 'x' FROM gateway.principals WHERE email = 'ada@example.com'"
    )
    listed = await shell.must("console", "accounts", "list")
    assert [*listed.splitlines()[-1].split()[:1], *listed.splitlines()[-1].split()[2:4]] == [
        "ada@example.com", "admin", "password",
    ]  # fmt: skip
    assert "?token=" not in await shell.must("console", "open", "--no-browser")  # somebody has an account
    code, said = await shell.run("console", "link", "ada@example.com")
    assert code == 1
    assert "accounts reset ada@example.com" in said
    assert "?token=" in await shell.must("console", "accounts", "reset", "ada@example.com", "--totp")
    for organization in ("acme", "beta"):
        person = await connection.fetchval(
            "WITH made AS (INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id)"
            " INSERT INTO gateway.principals (organization_id, kind, role, name, email)"
            " SELECT id, 'member', 'owner', 'Bo', 'bo@acme.example' FROM made RETURNING id",
            organization,
        )
        await connection.execute(
            "INSERT INTO gateway.console_accounts (principal_id, password_hash) VALUES ($1, 'x')", person
        )
        if organization == "acme":
            assert "?token=" in await shell.must("console", "accounts", "reset", "Bo@acme.example")
    code, said = await shell.run("console", "accounts", "reset", "bo@acme.example")
    assert code != 0
    assert str(person) in said, "two have it: their ids are told"
    assert "?token=" in await shell.must("console", "accounts", "reset", "bo@acme.example", "--organization", "beta")
    code, said = await shell.run("console", "accounts", "reset", "nobody@acme.example")
    assert code == 1
    assert "console accounts list" in said
    kinds = await connection.fetch("SELECT kind FROM gateway.console_links ORDER BY created_at")
    assert [row["kind"] for row in kinds] == ["first", *["reset"] * 3]  # one for each person, the newest


def test_a_browser_is_started_only_where_there_is_a_screen() -> None:
    assert not has_screen("linux", {"DISPLAY": "", "PATH": "/bin"})
    assert has_screen("linux", {"WAYLAND_DISPLAY": "wayland-0"})
    assert has_screen("linux", {"BROWSER": "firefox"})
    assert has_screen("darwin", {})
