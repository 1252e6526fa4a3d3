"""What makes alerts fire, done to engines, stores and processes of a running deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.metering.journal import frames
from infra.local.folders import DataFolder
from tests.e2e.failures.alert_world import Causes, World, again_and_again, scripted, stopped
from tests.e2e.failures.processes import kill, no_restarts, process_ids
from tests.waiting import eventually

CAUSES = Causes()
REFUSED_TOKENS = 13
"""An answer of so many is refused by the database, where a test says so."""


@CAUSES.of("FirstTokenWaitsForPrefill", "ErrorBudgetBurnsFast", "ErrorBudgetBurnsSlowly")
async def prompts_take_long(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, ttft_s=3.0, tokens=2):
        yield


@CAUSES.of("SlipstreamProcessDown")
async def a_process_hangs(world: World) -> AsyncIterator[None]:
    async with stopped(await world.running.pid("worker")):
        yield


@CAUSES.of("ServerErrors")
async def engines_fail(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, status=500):
        yield


@CAUSES.of("FirstTokenWaitsInQueue")
async def more_is_asked_at_once_than_there_are_places(world: World) -> AsyncIterator[None]:
    async with scripted(world, 60, ttft_s=0.4, tokens=2):
        yield


@CAUSES.of("RequestsAreShed")
async def more_is_asked_than_can_be_served_in_time(world: World) -> AsyncIterator[None]:
    async with scripted(world, 60, ttft_s=4.0, tokens=2):
        yield


@CAUSES.of("DecodeIsSlow")
async def tokens_take_long(world: World) -> AsyncIterator[None]:
    async with scripted(world, 4, tokens=10, inter_token_s=0.2):
        yield


@CAUSES.of("ReplicaDown")
async def an_engine_is_gone(world: World) -> AsyncIterator[None]:
    await world.places[0].kill()
    try:
        yield
    finally:
        await world.places[0].start_again()


@CAUSES.of("OneReplicaIsSlow")
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


@CAUSES.of("JournalDamaged")
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


@CAUSES.of("LedgerFallsBehind")
async def postgres_stands_still(world: World) -> AsyncIterator[None]:
    await world.ask()  # the key is in the gateway's memory
    async with stopped(process_ids(world.running)["postgres"]), again_and_again(world.ask):
        yield


@CAUSES.of("LedgerRefusesRows")
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


@CAUSES.of("EnginesAndLedgerDisagree")
async def somebody_writes_to_the_totals(world: World) -> AsyncIterator[None]:
    await world.ask()
    await world.running.ledger()
    async with world.running.database() as owner:

        async def forged() -> bool:
            return bool(await owner.execute(FORGE) != "INSERT 0 0")  # as soon as something was rolled up

        async def found() -> bool:
            newest = "SELECT wrong_hours FROM gateway.usage_verifications ORDER BY checked_at DESC LIMIT 1"
            return bool(await owner.fetchval(newest))

        await eventually(forged)
        await eventually(found)
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


@CAUSES.of("LimitsWithoutValkey")
async def valkey_is_gone(world: World) -> AsyncIterator[None]:
    async with no_restarts(world.running):
        await kill(world.running, "valkey")
        yield


@CAUSES.of("WorkerIsStuck", "ObjectivesAreNotCounted")
async def the_worker_stands_still(world: World) -> AsyncIterator[None]:
    async with stopped(await world.running.pid("worker")):
        yield


@CAUSES.of("WorkerTasksFail")
async def a_table_is_missing(world: World) -> AsyncIterator[None]:
    async with world.running.database() as owner:
        await owner.execute("ALTER TABLE gateway.usage_verifications RENAME TO missing")
        try:
            yield
        finally:
            await owner.execute("ALTER TABLE gateway.missing RENAME TO usage_verifications")
