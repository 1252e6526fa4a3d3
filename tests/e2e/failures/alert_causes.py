"""What makes alerts fire, done to a running deployment: inside `async with cause(world)` it lasts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import openai
import psutil

from gateway.metering.journal import frames
from infra.local.folders import DataFolder
from tests.deployment import Deployment
from tests.e2e.failures.engine_place import EnginePlace
from tests.e2e.failures.processes import kill, no_restarts, process_ids, until
from tests.prometheus import Prometheus

REFUSED_TOKENS = 13
"""An answer of so many is refused by the database, where a test says so."""


class World(msgspec.Struct):
    """What causes act on: a deployment on two fake engines, and the Prometheus that watches it."""

    running: Deployment
    places: list[EnginePlace]
    client: openai.AsyncOpenAI
    prometheus: Prometheus

    async def script(self, *places: EnginePlace, **fields: Any) -> None:
        """What these engines do with every request from now on; all of them, when none is given."""
        for place in places or self.places:
            await place.engine.control(**fields)

    async def ask(self) -> None:
        """One chat request, whatever it is answered."""
        with contextlib.suppress(openai.APIError):
            await self.client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "Hello."}], max_tokens=3_000
            )


Cause = Callable[[World], AbstractAsyncContextManager[None]]
CAUSES: dict[Cause, tuple[str, ...]] = {}
"""The alerts each makes fire. In order: an error budget, once spent, stays so for weeks."""


def causes(*alerts: str) -> Callable[[Callable[[World], AsyncIterator[None]]], Cause]:
    """Register what makes these alerts fire."""

    def register(lasting: Callable[[World], AsyncIterator[None]]) -> Cause:
        cause: Cause = asynccontextmanager(lasting)
        CAUSES[cause] = alerts
        return cause

    return register


@asynccontextmanager
async def again_and_again(act: Callable[[], Awaitable[object]], at_once: int = 1) -> AsyncIterator[None]:
    """Inside, so many do it without a pause."""

    async def repeat() -> None:
        while True:
            await act()

    tasks = [asyncio.create_task(repeat()) for _ in range(at_once)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


@asynccontextmanager
async def scripted(world: World, at_once: int, **fields: Any) -> AsyncIterator[None]:
    """Inside, engines do so, and so many customers ask; at the end engines are quick again."""
    await world.script(**fields)
    try:
        async with again_and_again(world.ask, at_once):
            yield
    finally:
        await world.script(reset=True)


@asynccontextmanager
async def stopped(pid: int) -> AsyncIterator[None]:
    """Inside, a process and its children stand still."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@causes("FirstTokenWaitsForPrefill", "ErrorBudgetBurnsFast", "ErrorBudgetBurnsSlowly")
async def prompts_take_long(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, ttft_s=3.0, tokens=2):
        yield


@causes("SlipstreamProcessDown")
async def a_process_hangs(world: World) -> AsyncIterator[None]:
    async with stopped(await world.running.pid("worker-webhooks")):
        yield


@causes("ServerErrors")
async def engines_fail(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, status=500):
        yield


@causes("FirstTokenWaitsInQueue")
async def more_is_asked_at_once_than_there_are_places(world: World) -> AsyncIterator[None]:
    async with scripted(world, 60, ttft_s=0.4, tokens=2):
        yield


@causes("RequestsAreShed")
async def more_is_asked_than_can_be_served_in_time(world: World) -> AsyncIterator[None]:
    async with scripted(world, 60, ttft_s=4.0, tokens=2):
        yield


@causes("DecodeIsSlow")
async def tokens_take_long(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, tokens=10, inter_token_s=0.2):
        yield


@causes("ReplicaDown")
async def an_engine_is_gone(world: World) -> AsyncIterator[None]:
    await world.places[0].kill()
    try:
        yield
    finally:
        await world.places[0].start_again()


@causes("OneReplicaIsSlow")
async def one_engine_is_slow(world: World) -> AsyncIterator[None]:
    await world.script(world.places[0], ttft_s=1.0)
    async with scripted_one(world):
        yield


@asynccontextmanager
async def scripted_one(world: World) -> AsyncIterator[None]:
    """Customers for engines of which one was made slow."""
    try:
        async with again_and_again(world.ask, 6):
            yield
    finally:
        await world.script(reset=True)


@causes("JournalDamaged")
async def a_byte_of_the_journal_changes(world: World) -> AsyncIterator[None]:
    await world.ask()
    await world.ask()
    await world.running.ledger()
    folder = DataFolder(world.running.data).journal / "gateway-1"
    async with no_restarts(world.running):
        await kill(world.running, "gateway-1")
        segment = max(folder.glob("*.slj"))
        data = bytearray(segment.read_bytes())
        first = next(entry for entry in frames.scan(bytes(data)).frames if entry[0] == frames.CLOSED)
        data[first[2] - 5] ^= 1
        segment.write_bytes(data)
    yield
    await kill(world.running, "gateway-1")  # the alert stays until the gateway is started again


@causes("LedgerFallsBehind")
async def postgres_stands_still(world: World) -> AsyncIterator[None]:
    await world.ask()  # the key is in the gateway's memory
    async with stopped(process_ids(world.running)["postgres"]), again_and_again(world.ask):
        yield


@causes("LedgerRefusesRows")
async def the_database_refuses_a_row(world: World) -> AsyncIterator[None]:
    async with world.running.database() as owner:
        await owner.execute(
            "ALTER TABLE gateway.usage_events ADD CONSTRAINT ours"
            f" CHECK (completion_tokens <> {REFUSED_TOKENS}) NOT VALID"
        )
        try:
            await world.script(tokens=REFUSED_TOKENS)
            async with again_and_again(world.ask):
                yield
        finally:
            await world.script(reset=True)
            await owner.execute("ALTER TABLE gateway.usage_events DROP CONSTRAINT ours")
            await kill(world.running, "gateway-1")  # the alert stays until the gateway is started again


@causes("EnginesAndLedgerDisagree")
async def somebody_writes_to_the_totals(world: World) -> AsyncIterator[None]:
    await world.ask()
    await world.running.ledger()
    async with world.running.database() as owner:

        async def forged() -> bool:
            return bool(await owner.execute(FORGE) != "INSERT 0 0")  # as soon as something was rolled up

        async def found() -> bool:
            newest = "SELECT wrong_hours FROM gateway.usage_verifications ORDER BY checked_at DESC LIMIT 1"
            return bool(await owner.fetchval(newest))

        await until(forged)
        await until(found)
        await kill(world.running, "gateway-1")  # it looks at what was found when it starts, and then each minute
        try:
            yield
        finally:
            await owner.execute("DELETE FROM gateway.usage_hourly WHERE model = 'forged'")


FORGE = """
INSERT INTO gateway.usage_hourly
SELECT hour - interval '1 hour', organization_id, project_id, key_id, 'forged', tier, requests, prompt_tokens,
       cached_tokens, cache_write_tokens, completion_tokens, reasoning_tokens, amount_micro
  FROM gateway.usage_hourly LIMIT 1
"""


@causes("LimitsWithoutValkey")
async def valkey_is_gone(world: World) -> AsyncIterator[None]:
    async with no_restarts(world.running):
        await kill(world.running, "valkey")
        yield


@causes("WorkerIsStuck", "ObjectivesAreNotCounted")
async def the_worker_stands_still(world: World) -> AsyncIterator[None]:
    async with stopped(await world.running.pid("worker-upkeep")):
        yield


@causes("WorkerTasksFail")
async def a_table_is_missing(world: World) -> AsyncIterator[None]:
    async with world.running.database() as owner:
        await owner.execute("ALTER TABLE gateway.usage_verifications RENAME TO missing")
        try:
            yield
        finally:
            await owner.execute("ALTER TABLE gateway.missing RENAME TO usage_verifications")
