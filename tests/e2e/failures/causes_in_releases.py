"""What makes alerts of releases fire, done to a running deployment that releases the model `wide` on a candidate."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.e2e.failures.alert_world import Causes, World, again_and_again, stopped
from tests.waiting import eventually

CAUSES = Causes()
AT_ONCE = 6
BASELINE_REQUESTS = 1_100
"""Enough to place a p99 by."""
TOKENS = 4
QUICK = {"ttft_s": 0.03, "tokens": TOKENS, "inter_token_s": 0.002}
STATE = "SELECT state, stage, ended_at FROM gateway.releases ORDER BY created_at DESC LIMIT 1"
SERVED = (
    "SELECT count(*) FROM gateway.request_traces"
    f" WHERE model = 'wide' AND status = 200 AND completion_tokens = {TOKENS}"
)
"""Other causes ask the model too, some for a single token: such an answer has no time between tokens."""
FAILED_NIGHT = """
WITH asked AS (
    INSERT INTO evals.runs (model, pool, first_seed, night, status, ended_at)
    VALUES ('wide', 'wide', 0, current_date, 'done', now()) RETURNING id
)
INSERT INTO evals.nights (run_id, model, pool, night, decision, reason, changed, slices)
SELECT id, 'wide', 'wide', current_date, 'fail', 'a test', ARRAY['pool: old -> wide'],
       '[{"slice": "facts", "decision": "fail", "reason": "a test", "against": "version_before", "nights": 1,
          "items": 40, "clusters": 9, "difference": -0.5, "lower": -0.6, "upper": -0.4, "score": 0.5}]'
  FROM asked RETURNING run_id
"""
_sessions = itertools.count()


@asynccontextmanager
async def released(world: World) -> AsyncIterator[None]:
    """Inside, customers ask for the model without a pause, each time in a conversation of their own, and the
    candidate serves some of them; at the end the release is over."""
    for engine in (world.wide.engine, world.candidate.engine):
        await engine.control(reset=True, **QUICK)
    headers = {"authorization": f"Bearer {world.running.key}"}
    async with (
        aiohttp.ClientSession(world.running.url, headers=headers) as session,
        world.running.database() as connection,
    ):

        async def ask() -> None:
            messages = [{"role": "user", "content": "Hello."}]
            user = f"user-{next(_sessions)}"
            body = {"model": "wide", "messages": messages, "user": user, "max_tokens": TOKENS, "stream": True}
            async with session.post("/v1/chat/completions", json=body) as answer:
                await answer.read()

        async def served_enough() -> bool:
            return bool(await connection.fetchval(SERVED) >= BASELINE_REQUESTS)

        async def serves_customers() -> bool:
            newest = await connection.fetchrow(STATE)
            return bool(newest["state"] == "running" and newest["stage"] >= 1)

        async with again_and_again(ask, AT_ONCE):
            await eventually(served_enough)
            await world.running.command(
                "releases", "start", "--model", "wide", "--candidate", "candidate", "--stages", "shadow,50,100",
                "--least", "5000", "--tolerance", "0.5", "--shadow-share", "1", "--shadow-least", "5",
            )  # fmt: skip
            try:
                try:
                    await eventually(serves_customers)
                except AssertionError:
                    shown = await world.running.command("releases", "show", "wide")
                    raise AssertionError(f"the candidate is given no customers:\n{shown}") from None
                yield
            finally:
                if (await connection.fetchrow(STATE))["ended_at"] is None:
                    await world.running.command("releases", "rollback", "wide", "--reason", "the test has ended")
    for engine in (world.wide.engine, world.candidate.engine):
        await engine.control(reset=True)


@CAUSES.of("ReleaseRolledBack")
async def a_candidate_fails(world: World) -> AsyncIterator[None]:
    async with released(world):
        await world.script(world.candidate, status=500, message="a broken layer")
        yield


@CAUSES.of("ReleaseIsBlind")
async def a_transaction_is_left_open(world: World) -> AsyncIterator[None]:
    async with released(world), world.running.database() as forgotten:
        transaction = forgotten.transaction()
        await transaction.start()
        await forgotten.execute("SELECT pg_current_xact_id()")
        try:
            yield
        finally:
            await transaction.rollback()


@CAUSES.of("ReleaseIsStuck")
async def the_worker_of_releases_stands_still(world: World) -> AsyncIterator[None]:
    async with released(world), stopped(await world.running.pid("worker")):
        yield


@CAUSES.of("NightlySliceIsWorse")
async def a_night_finds_a_slice_worse(world: World) -> AsyncIterator[None]:
    async with world.running.database() as connection:
        run_id = await connection.fetchval(FAILED_NIGHT)
        try:
            yield
        finally:
            await connection.execute("DELETE FROM evals.runs WHERE id = $1", run_id)
