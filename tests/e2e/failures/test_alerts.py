"""Every alert fires when its cause is there, seen by a real Prometheus that watches a real deployment.

Windows and waits of the rules are sixty times shorter than shipped: what takes ten minutes takes ten seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from infra.local.folders import DataFolder
from tests.deployment import deployment, fake_fleet
from tests.e2e.board_questions import has_data, loud_while
from tests.e2e.failures import alert_causes, causes_by_customers, causes_in_releases
from tests.e2e.failures.alert_world import Cause, World, again_and_again, ask, fires
from tests.e2e.failures.engine_place import EnginePlace
from tests.e2e.failures.processes import fresh_connections, kill
from tests.fakes.process import fake_engine
from tests.prometheus import Prometheus, prometheus
from tests.small_disk import small_disk
from tests.waiting import eventually

TOKEN = "token-of-the-alerts"
SPEED = 60
CAUSES = alert_causes.CAUSES | causes_by_customers.CAUSES | causes_in_releases.CAUSES
DISK_BYTES = 250_000_000
ELSEWHERE = {
    # alert: how its cause is made, below or in test_engine_alerts.py, on a deployment of its own
    "SlipstreamProcessKeepsRestarting": "a process that keeps restarting",
    "JournalCannotBeWritten": "a full disk",
    "KvMemoryNearlyFull": "long prompts that nobody routes",
    "SequencesAreRetracted": "long prompts that nobody routes",
    "FilesAreForgottenBetweenKeystrokes": "more files than an engine keeps",
}


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    """A deployment on fake engines; causes leave it whole."""
    places = [EnginePlace(TOKEN) for _ in range(4)]
    for place in places:
        await place.start()
    one, other, wide, candidate = (Replica(f"fake-{number}", place.engine.url) for number, place in enumerate(places))
    pools = [
        Pool("fake", "sglang", (one, other), max_concurrency=4),
        Pool("wide", "sglang", (wide,), max_concurrency=1_000),
        Pool("candidate", "sglang", (candidate,), max_concurrency=1_000),
    ]
    models = [Model("fake", Tier.CHAT, "fake", 4_096), Model("wide", Tier.CHAT, "wide", 4_096)]
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
        "SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1",
        "SLIPSTREAM_LOCAL__RESTART_MAX_S": "0.2",
        "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S__CHAT": "8",
        "SLIPSTREAM_GATEWAY__LIMITS__MAX_DELAYED_SETTLEMENTS": str(causes_by_customers.DELAYED_SETTLEMENTS),
        "SLIPSTREAM_GATEWAY__ADMIN__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES": "true",
        "SLIPSTREAM_WORKER__PREFIXES__ROLL_UP_EVERY_S": "1",
        "SLIPSTREAM_WORKER__PREFIXES__WINDOW_S": "60",
        "SLIPSTREAM_WORKER__ROLL_UP_EVERY_S": "1",
        "SLIPSTREAM_SLO__ROLL_UP_EVERY_S": "1",
        "SLIPSTREAM_WORKER__LEDGER__VERIFY_EVERY_S": "1",
    }
    try:
        async with (
            deployment(environment=environment, token=TOKEN) as running,
            prometheus(DataFolder(running.data).prometheus_targets, speed=SPEED) as watching,
            openai.AsyncOpenAI(
                base_url=f"{running.url}/v1", api_key=running.key, max_retries=0, http_client=fresh_connections()
            ) as client,
        ):
            await eventually(partial(all_seen, watching))
            yield World(running, places[:2], places[2], places[3], client, watching)
    finally:
        for place in places:
            await place.stop()


async def all_seen(watching: Prometheus) -> bool:
    """It has scraped every process: an increase is seen only from a number that was there before."""
    return set((await watching.targets()).values()) == {"up"}


@pytest.mark.nightly
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
async def test_alerts_fire_while_their_cause_lasts_and_not_before(world: World, cause: Cause) -> None:
    await fires(world.prometheus, *CAUSES[cause], among=False)
    async with cause(world):
        await fires(world.prometheus, *CAUSES[cause])
        for question in (each for alert in CAUSES[cause] for each in loud_while(alert)):
            assert has_data(await world.prometheus.query(question.expression)), question


@pytest.mark.nightly
async def test_a_process_that_dies_again_and_again(world: World) -> None:
    """Four starts take longer than a sixtieth of fifteen minutes on a busy machine: a fifth it is."""
    targets = DataFolder(world.running.data).prometheus_targets
    async with prometheus(targets, speed=5) as slower:
        seen: set[str] = set()

        async def kill_once_seen() -> None:
            found = await slower.query('process_start_time_seconds{instance="router"}')
            started = found[0]["value"][1] if found else ""
            if started and started not in seen:
                seen.add(started)
                await kill(world.running, "router")
            await asyncio.sleep(0.05)

        async with again_and_again(kill_once_seen):
            await fires(slower, "SlipstreamProcessKeepsRestarting")


@pytest.mark.nightly
async def test_a_full_disk() -> None:
    async with fake_engine(token=TOKEN) as engine:
        with small_disk("ext4", DISK_BYTES) as disk:
            async with (
                deployment(data=disk.path / "data", environment=fake_fleet(engine.url), token=TOKEN) as running,
                prometheus(DataFolder(running.data).prometheus_targets, speed=SPEED) as watching,
                openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client,
            ):
                await ask(client)
                disk.fill()
                try:
                    async with again_and_again(partial(ask, client)):
                        await fires(watching, "JournalCannotBeWritten")
                finally:
                    disk.free()
