"""A run of a whole deployment as `up` starts it: its worker, Valkey and PostgreSQL are killed while it asks, and every
item is there once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from contracts.backoff import Backoff
from tests.deployment import Deployment, deployment, fake_fleet
from tests.fakes.process import fake_engine

GUARD_S = 240.0
TOKEN = "engine-token"
ITEMS = 250


async def shown(running: Deployment, run_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The run, once this holds of it; while the database is away nothing is told of it."""
    backoff = Backoff(0.2, 1.0)
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                found: dict[str, Any] = msgspec.json.decode(await running.command("evals", "show", run_id, "--json"))
            except AssertionError as error:
                assert "database" in str(error), error
            else:
                if holds(found["run"]):
                    return found
            await asyncio.sleep(backoff.next_s())


def _has(answered: int, run: dict[str, Any]) -> bool:
    return bool(run["answered"] >= answered)


@pytest.mark.system
@pytest.mark.nightly
async def test_kill_9_of_worker_valkey_and_postgres_loses_no_item_and_counts_none_twice() -> None:
    async with fake_engine(token=TOKEN) as engine:
        await engine.control(ttft_s=0.4, tokens=4)
        environment = {
            **fake_fleet(engine.url),
            "SLIPSTREAM_EVALS__LEASE_S": "3",
            "SLIPSTREAM_EVALS__AT_ONCE": "4",
        }
        async with deployment(environment=environment, token=TOKEN) as running:
            asked = ("--model", "fake", "--slices", "facts,lists", "--items", str(ITEMS), "--first-seed", "10000")
            made = msgspec.json.decode(await running.command("evals", "run", *asked, "--no-wait", "--json"))
            for answered, name in ((20, "worker"), (80, "valkey"), (140, "postgres"), (220, "worker")):
                await shown(running, made["id"], functools.partial(_has, answered))
                await running.kill(name)
            found = await shown(running, made["id"], lambda run: run["status"] not in ("queued", "running"))
            assert (found["run"]["status"], found["run"]["error"]) == ("done", None)
            async with running.database() as database:
                rows = await database.fetch("SELECT slice, seed, request_id FROM evals.items")
            seeds = range(10_000, 10_000 + ITEMS)
            assert sorted((row["slice"], row["seed"]) for row in rows) == [
                (name, seed) for name in ("facts", "lists") for seed in seeds
            ]
            ids = [row["request_id"] for row in rows]
            assert len(set(ids)) == len(ids)
            async with asyncio.timeout(GUARD_S):
                ledger = await running.ledger(*ids)
            assert {(row["purpose"], row["billed"]) for row in ledger} == {("evals", False)}
            output = await running.command("evals", "show", made["id"])
            assert f"fake, as routed: done, {2 * ITEMS} of {2 * ITEMS} items answered" in output
