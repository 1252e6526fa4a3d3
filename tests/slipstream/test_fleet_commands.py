"""The fleet edited by commands: what differs is told, what would break is refused, gateways are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from gateway.desired.reports import Reporter
from tests.deployment import free_port
from tests.slipstream.shell import Shell
from tests.waiting import eventually

MODEL = """
name = "large"
tier = "chat"
pool = "blue"
context_tokens = 4096
aliases = ["big"]
"""


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    """For a gateway's reports."""
    async with asyncpg.create_pool(fresh_postgres_url, min_size=1, max_size=2) as pool:
        yield pool


@pytest.fixture
async def shell(fresh_postgres_url: str, data_folder: Path, tmp_path: Path) -> Shell:
    """Of a deployment with a pool of two, and a model on it."""
    shell = Shell(fresh_postgres_url, data_folder)
    await shell.must("fleet", "pools", "set", "blue", "--driver", "sglang", "--replica", "b0=http://h:1", "--replica",
                     "b1=http://h:2")  # fmt: skip
    file = tmp_path / "large.toml"
    file.write_text(MODEL)
    await shell.must("fleet", "models", "set", "large", "--file", str(file))
    return shell


async def test_what_is_given_changes_and_the_rest_stays(shell: Shell) -> None:
    said = await shell.must("fleet", "models", "set", "large", "--default-max-tokens", "64")
    assert said.startswith("version 3:\n  model large: default_max_tokens 512 -> 64\nno gateway is running")
    shown = msgspec.json.decode(await shell.must("fleet", "models", "show", "large"))
    assert (shown["aliases"], shown["default_max_tokens"]) == (["big"], 64)
    assert "big" in await shell.must("fleet", "models", "list")
    assert "b1" in await shell.must("fleet", "pools", "list")
    assert "nothing differs; the fleet stays at version 3" in await shell.must("fleet", "replicas", "weight", "b1", "1")


async def test_a_refused_command_changes_nothing_and_says_what_to_do(shell: Shell) -> None:
    before = await shell.must("fleet", "versions")
    for command, said in (
        ("models set small --tier chat", "to add it, give --pool, --context-tokens, or --file"),
        ("pools set green", "to add it, give --driver"),
        ("pools remove blue", "serves large"),
        ("pools set blue --replica b0", "write ID=URL"),
        ("replicas remove b9", "replicas: b0, b1"),
        ("models alias quick", "Give the model"),
        ("models set large --pool green", "no pool named 'green'"),
        ("models set large --default-max-tokens 1 --if-version 1", "at version 2, not 1"),
        ("fleet rollback 9", "no version '9'"),
    ):
        code, told = await shell.run(*command.split())
        assert (code, said in told) == (1, True), told
    assert await shell.must("fleet", "versions") == before
    assert (await shell.must("fleet", "diff")).startswith("version 2 (model.put, ")


async def test_the_last_engine_is_drained_only_by_force(shell: Shell) -> None:
    await shell.must("fleet", "replicas", "drain", "b0")
    code, said = await shell.run("fleet", "replicas", "drain", "b1")
    assert (code, "Nothing would serve 'large'" in said) == (1, True)
    await shell.must("fleet", "replicas", "drain", "b1", "--force")
    back = msgspec.json.decode(await shell.must("fleet", "rollback", "2", "--json", "--wait-s", "0"))
    assert back["differences"] == ["replica b0 of blue: weight 0.0 -> 1.0", "replica b1 of blue: weight 0.0 -> 1.0"]


async def test_a_dry_run_tells_and_waits_for_nobody(shell: Shell) -> None:
    said = await shell.must("fleet", "models", "alias", "quick", "large", "--dry-run")
    assert said == 'version 3 would be:\n  model large: aliases ["big"] -> ["big","quick"]'
    assert (await shell.must("fleet", "diff")).startswith("version 2 ")


async def test_gateways_are_waited_for_and_a_refusal_is_the_commands(shell: Shell, pool: asyncpg.Pool[Any]) -> None:
    first, second = Reporter(pool, "g0", 5.0), Reporter(pool, "g1", 5.0)
    first.serves(2)
    second.serves(2)
    first.start()
    second.start()
    try:

        async def both_serve() -> bool:
            return len(await pool.fetch("SELECT FROM gateway.fleet_gateways WHERE version = 2")) == 2

        await eventually(both_serve)
        command = asyncio.create_task(shell.run("fleet", "replicas", "weight", "b1", "2"))
        first.serves(3)
        second.refuses(3, "models.large.tokenizer: there is no such folder")
        code, said = await command
    finally:
        await first.stop()
        await second.stop()
    assert code == 1
    assert "served by: g0" in said
    assert "g1 stays at version 2 and tries again: models.large.tokenizer: there is no such folder" in said


async def test_a_probe_asks_the_engines_that_were_added_to_a_running_fleet(
    shell: Shell, pool: asyncpg.Pool[Any]
) -> None:
    """The settings name none of them."""
    for replica in ("b0", "b1"):
        await shell.must("fleet", "replicas", "add", "blue", replica, f"http://127.0.0.1:{free_port()}")
    code, said = await shell.run("config", "check", "--probe")
    assert code == 1
    assert [line for line in said.splitlines() if "pools.blue.replicas.b0: http://127.0.0.1:" in line]
    assert "pools.blue.replicas.b1: " in said
