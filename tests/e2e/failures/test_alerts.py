"""Every alert fires when its cause is there, seen by a real Prometheus that watches a real deployment.

Windows and waits of the rules are sixty times shorter than shipped: what takes ten minutes takes ten seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from infra.local.folders import DataFolder
from tests.deployment import deployment, fake_fleet
from tests.e2e.failures.alert_causes import CAUSES, Cause, World, again_and_again
from tests.e2e.failures.engine_place import EnginePlace
from tests.e2e.failures.processes import fresh_connections, kill
from tests.fakes.process import fake_engine
from tests.prometheus import RULES, Prometheus, prometheus, rules_in
from tests.small_disk import small_disk

TOKEN = "token-of-the-alerts"
SPEED = 60
GUARD_S = 150.0
"""Against hanging for ever, not a measure."""
DISK_BYTES = 250_000_000
ELSEWHERE = {
    # alert: how its cause is made below, on a deployment of its own
    "SlipstreamProcessKeepsRestarting": "a process that dies again and again",
    "JournalCannotBeWritten": "a full disk",
}
NOT_MADE = {
    # alert: why its cause is not made here; promtool fires it (tests/infra/prometheus)
    "SettlementsAreDropped": "more than a hundred streams that end while Valkey is away",
    "ClientsStall": "clients that read too late for the kernel's buffers to hide it",
    "KvMemoryNearlyFull": "an engine with little memory, which the router does not overfill for long",
    "SequencesAreRetracted": "an engine with little memory, which the router does not overfill for long",
    "FilesAreForgottenBetweenKeystrokes": "more files than an engine keeps, a hundred keystrokes within seconds",
    "WebhooksFail": "tests/gateway/admin/test_webhooks.py fails tries and counts them",
    "ReleaseRolledBack": "tests/e2e/test_releases.py rolls releases back",
    "ReleaseIsBlind": "a transaction that is left open for minutes while a release runs",
    "ReleaseIsStuck": "a day, or a worker that is stopped for minutes while a release runs",
    "RequestTracesDropped": "20,000 requests while PostgreSQL is away",
    "ATenantsPromptsAreReusedByHalf": "three hours of prompts, which say what is usual",
}


def test_every_alert_has_a_cause_here_or_a_reason_why_not() -> None:
    alerts = {rule["alert"] for file in RULES for rule in rules_in(file) if "alert" in rule}
    listed = [alert for made in CAUSES.values() for alert in made] + [*ELSEWHERE, *NOT_MADE]
    assert sorted(listed) == sorted(alerts)


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    """A deployment on two fake engines with four places each; causes leave it whole."""
    places = [EnginePlace(TOKEN), EnginePlace(TOKEN)]
    for place in places:
        await place.start()
    replicas = tuple(Replica(f"fake-{number}", place.engine.url) for number, place in enumerate(places))
    pool = Pool("fake", "sglang", replicas, max_concurrency=4)
    model = Model("fake", Tier.CHAT, "fake", 4_096)
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode([model]).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
        "SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1",
        "SLIPSTREAM_LOCAL__RESTART_MAX_S": "0.2",
        "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S__CHAT": "8",
        "SLIPSTREAM_WORKER__ROLLUP_EVERY_S": "1",
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
            yield World(running, places, client, watching)
    finally:
        for place in places:
            await place.stop()


async def fires(watching: Prometheus, *alerts: str, among: bool = True) -> None:
    """Return once all of these fire, each with its sentences; or, unless `among`, once none does."""
    firing: dict[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(GUARD_S):
            while True:
                firing = {alert["labels"]["alertname"]: alert["annotations"] for alert in await watching.firing()}
                if set(alerts) <= firing.keys() if among else not set(alerts) & firing.keys():
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{alerts} {'do not fire' if among else 'fire without cause'}; firing: {firing}") from None
    for alert in alerts if among else ():
        said = " ".join(firing[alert].values())
        assert "<error" not in said, said
        assert "<no value>" not in said, said


@pytest.mark.nightly
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
async def test_alerts_fire_while_their_cause_lasts_and_not_before(world: World, cause: Cause) -> None:
    await fires(world.prometheus, *CAUSES[cause], among=False)
    async with cause(world):
        await fires(world.prometheus, *CAUSES[cause])


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
                world = World(running, [], client, watching)
                await world.ask()
                disk.fill()
                try:
                    async with again_and_again(world.ask):
                        await fires(watching, "JournalCannotBeWritten")
                finally:
                    disk.free()
