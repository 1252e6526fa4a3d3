"""A transaction that somebody left open keeps requests from being counted, and must not blind the judge to harm."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from control.releases import store
from control.releases.machine import State
from control.releases.release import Release
from control.releases.rollout import evidence
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.metrics import ReleaseMetrics, Standing
from tests.control.releases.rollout.test_controller import Timer, begun, require_replayed, split, standing
from tests.control.releases.rollout.traffic import Load


@pytest.fixture
async def forgotten(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(fresh_postgres_url, server_settings={"application_name": "forgotten"})
    yield connection
    await connection.close()


async def blinded(connection: asyncpg.Connection, controller: Controller, open_one: asyncpg.Connection) -> Release:
    """A release in its first stage, behind whose evidence a transaction has been left open."""
    release = await begun(connection, controller)
    await controller.tick(connection)
    await open_one.execute("BEGIN")
    await open_one.fetchval("SELECT pg_current_xact_id()::text")
    return release


async def test_harm_is_seen_behind_an_open_transaction(
    connection: asyncpg.Connection, forgotten: asyncpg.Connection
) -> None:
    timer = Timer()
    controller = Controller(ReleasesConfig(), timer)
    release = await blinded(connection, controller, forgotten)
    for _ in range(3):
        await Load(failing=1.0).serve(connection, release, 40)
        await controller.tick(connection)
    assert (await standing(connection, release)).state is State.RUNNING, "as long as it may end in the next moment"
    timer.now_s += 31
    assert await controller.tick(connection) == 1
    release = await standing(connection, release)
    assert (release.state, await split(connection)) == (State.ROLLED_BACK, None)
    assert "worse than tolerated" in release.reason
    assert await require_replayed(connection, release) > 0


async def test_a_good_candidate_waits_for_it_and_is_counted_once(
    connection: asyncpg.Connection, forgotten: asyncpg.Connection
) -> None:
    timer = Timer()
    controller = Controller(ReleasesConfig(), timer)
    release = await blinded(connection, controller, forgotten)
    served = await Load().serve(connection, release, 150)
    await controller.tick(connection)
    timer.now_s += 31
    assert await controller.tick(connection) == 0
    blind = await standing(connection, release)
    assert (blind.state, blind.stage) == (State.RUNNING, 1)
    pid = forgotten.get_server_pid()
    assert f"because the transaction of process {pid} (forgotten, database" in blind.told
    assert "open since 2" in blind.told
    assert controller.blind_s == {release.id: 31}
    await forgotten.execute("COMMIT")
    assert await controller.tick(connection) == 1
    assert (await standing(connection, release)).stage == 2
    assert controller.blind_s == {}
    steps = await store.steps_of(connection, release.id)
    units = [each.unit for row in steps for each in evidence.unpacked(row["evidence"]).observations]
    assert (len(units), len(set(units))) == (served, served)
    assert await require_replayed(connection, release) > 0


async def test_how_long_it_stands_is_told(connection: asyncpg.Connection) -> None:
    release, registry = await begun(connection, Controller(ReleasesConfig())), CollectorRegistry()
    shown = Standing("m", State.RUNNING, 0.05, release.stage_began_at, None, 31.0)
    ReleaseMetrics(registry).tell([shown], 0.0)
    assert b'slipstream_release_blind_seconds{model="m"} 31.0' in generate_latest(registry)
