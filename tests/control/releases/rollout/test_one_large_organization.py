"""An organization with nearly all of the traffic, beside others: it decides no more than its share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from control.releases import store
from control.releases.machine import State
from control.releases.release import Release
from control.releases.rollout import evidence
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.shares import ALONE
from tests.control.releases.fleets import started
from tests.control.releases.rollout.test_controller import MARGINS, STAGES, require_replayed, standing
from tests.control.releases.rollout.traffic import Load, history, row, write

OTHER = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
async def database(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(fresh_postgres_url)
    yield connection
    await connection.close()


async def begun(connection: asyncpg.Connection) -> Release:
    """One in its first stage with customers, in whose baseline two organizations have a part."""
    controller = Controller(ReleasesConfig())
    release = await started(connection, stages=STAGES, margins=MARGINS)
    await controller.tick(connection)
    await controller.tick(connection)
    return await standing(connection, release)


async def taken(connection: asyncpg.Connection, release: Release) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in await store.steps_of(connection, release.id):
        for name, count in evidence.unpacked(step["evidence"]).organizations.items():
            found[name] = found.get(name, 0) + count
    return found


async def test_it_has_half_of_the_baseline_and_of_every_looks_evidence(database: asyncpg.Connection) -> None:
    choose = random.Random(1)
    await history(database, 600, organization_id=OTHER)
    await write(database, [row(choose, slower=100.0) for _ in range(5_000)])
    release = await begun(database)
    assert release.organization_share == 0.5
    thresholds = msgspec.json.decode(release.thresholds or "")
    assert thresholds["ttft_ms"][0] < 1_000 < thresholds["ttft_ms"][2], "a half of slow ones moves no more than a half"
    large, small = Load(seed=2), Load(seed=3, organization=OTHER)
    for look in range(3):
        await large.serve(database, release, 200)
        if look:
            await small.serve(database, release, 60)
        await Controller(ReleasesConfig()).tick(database)
        found = await taken(database, release)
        assert sum(found.values()) - found.get(OTHER, 0) == max(ALONE, found.get(OTHER, 0))
    assert found[OTHER] == 240
    release = await standing(database, release)
    await large.serve(database, release, 20)
    controller = Controller(ReleasesConfig())
    await controller.tick(database)
    assert "40 sessions beyond one organization's 50% were left out" in (await standing(database, release)).told
    await controller.tick(database)
    assert "left out" not in (await standing(database, release)).told, "they are not read for ever"
    assert await require_replayed(database, release) > 2


async def test_who_asks_for_single_tokens_keeps_no_release_waiting(database: asyncpg.Connection) -> None:
    await history(database, 400, organization_id=OTHER, itl_max_ms=None, completion_tokens=1)
    await history(database, 1_200)
    release = await begun(database)
    assert release.state is State.RUNNING, release.told
    assert release.organization_share == pytest.approx(0.6)


async def test_a_candidate_that_fails_it_alone_is_rolled_back_all_the_same(database: asyncpg.Connection) -> None:
    for name in (OTHER, "00000000-0000-0000-0000-000000000001"):
        await history(database, 600, organization_id=name)
    release = await begun(database)
    await Load(failing=1.0).serve(database, release, 200)
    await Controller(ReleasesConfig()).tick(database)
    release = await standing(database, release)
    assert release.state is State.ROLLED_BACK, release.told
    assert await require_replayed(database, release) > 0
