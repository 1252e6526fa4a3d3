"""A prompt sent twice through a running gateway, and a command that shows what a tenant's prompts lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from click.testing import CliRunner

from control.prefixes.prefixes import PrefixDrop, PrefixShare
from slipstream.commands.prefix import prefix
from storage.engine import lazy_pool
from tests.gateway.prefixes.prompts import ACME
from tests.gateway.prefixes.traffic import CLOCK, Traffic
from tests.gateway.slow_platform import SlowPlatform


async def test_a_prompt_that_came_before_is_reusable(platform: SlowPlatform) -> None:
    known = await platform.add_key(new_organization=True)
    first, second = [await platform.ask(key=known.secret, message="x" * 2_000) for _ in range(2)]
    before, after = [await platform.sample(each.request_id) for each in (first, second)]
    assert (before["reusable_tokens"], before["cause"]) == (0, "first")
    assert after["cause"] == "whole"
    assert 0 < after["reusable_tokens"] <= after["prompt_tokens"]
    assert (after["template"], after["blocks"]) == (before["template"], before["blocks"])
    other = await platform.add_key(new_organization=True)
    foreign = await platform.sample((await platform.ask(key=other.secret, message="x" * 2_000)).request_id)
    assert (foreign["reusable_tokens"], foreign["cause"]) == (0, "first")
    assert not set(foreign["blocks"]) & set(after["blocks"])


async def test_a_command_shows_what_was_lost_and_why(fresh_postgres_url: str, tmp_path: Path) -> None:
    settings = tmp_path / "slipstream.toml"
    settings.write_text(f'[local]\ndata = "{tmp_path}"\ndatabase_url = "{fresh_postgres_url}"\n')
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        await pool.execute("INSERT INTO gateway.organizations (id, name) VALUES ($1, 'acme')", ACME)
        traffic = Traffic(pool, fresh_postgres_url, datetime.now(UTC))
        await traffic.usual_hours()
        await traffic.now(CLOCK)
        assert len(traffic.upkeep()) == 1
        rows = await pool.fetch("SELECT * FROM gateway.prefix_shares")
        # as if the worker had not come to the newest hour yet: the command adds it up
        await pool.execute(
            "DELETE FROM gateway.prefix_shares WHERE hour = (SELECT max(hour) FROM gateway.prefix_shares)"
        )

    async def run(*arguments: str) -> str:
        given = [*arguments, "--organization", "acme", "--config", str(settings)]
        result = await asyncio.to_thread(CliRunner().invoke, prefix, given)
        assert result.exit_code == 0, result.output
        return result.stdout

    lines = (await run("--json")).splitlines()
    shares = [msgspec.json.decode(line, type=PrefixShare) for line in lines[:-1]]
    drop = msgspec.json.decode(lines[-1], type=PrefixDrop)
    assert sum(share.requests for share in shares) == 120
    assert {(share.hour, share.cause.value, share.requests, share.reusable_tokens) for share in shares} == {
        (row["hour"], row["cause"], row["requests"], row["reusable_tokens"]) for row in rows
    }
    assert (drop.cause, drop.part, drop.ended_at) == ("timestamp", "system", None)
    shown = await run()
    prompts = sum(share.prompt_tokens for share in shares)
    reusable = sum(share.reusable_tokens for share in shares)
    since, said, *_ = shown.splitlines()
    assert since.startswith("requests since ")
    assert said.startswith(f"{reusable / prompts:.1%} of {prompts:,} prompt tokens repeat an earlier prompt")
    assert "timestamp in system, from token 0" in shown
    assert (await run("--hours")).count("repeat an earlier prompt") == len({share.hour for share in shares})
