"""An organization with nearly all of the traffic, beside others: it decides no more than its share."""

from __future__ import annotations

import random

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


async def test_it_has_half_of_the_baseline_and_of_every_looks_evidence(connection: asyncpg.Connection) -> None:
    choose = random.Random(1)
    await history(connection, 600, organization_id=OTHER)
    await write(connection, [row(choose, slower=100.0) for _ in range(5_000)])
    release = await begun(connection)
    assert release.organization_share == 0.5
    thresholds = msgspec.json.decode(release.thresholds or "")
    assert thresholds["ttft_ms"][0] < 1_000 < thresholds["ttft_ms"][2], "a half of slow ones moves no more than a half"
    large, small = Load(seed=2), Load(seed=3, organization=OTHER)
    for look in range(3):
        await large.serve(connection, release, 200)
        if look:
            await small.serve(connection, release, 60)
        await Controller(ReleasesConfig()).tick(connection)
        found = await taken(connection, release)
        assert sum(found.values()) - found.get(OTHER, 0) == max(ALONE, found.get(OTHER, 0))
    assert found[OTHER] == 240
    release = await standing(connection, release)
    await large.serve(connection, release, 20)
    controller = Controller(ReleasesConfig())
    await controller.tick(connection)
    assert "40 sessions beyond one organization's 50% were left out" in (await standing(connection, release)).told
    await controller.tick(connection)
    assert "left out" not in (await standing(connection, release)).told, "they are not read for ever"
    assert await require_replayed(connection, release) > 2


async def test_who_asks_for_single_tokens_keeps_no_release_waiting(connection: asyncpg.Connection) -> None:
    await history(connection, 400, organization_id=OTHER, itl_max_ms=None, completion_tokens=1)
    await history(connection, 1_200)
    release = await begun(connection)
    assert release.state is State.RUNNING, release.told
    assert release.organization_share == pytest.approx(0.6)


async def test_a_candidate_that_fails_it_alone_is_rolled_back_all_the_same(connection: asyncpg.Connection) -> None:
    for name in (OTHER, "00000000-0000-0000-0000-000000000001"):
        await history(connection, 600, organization_id=name)
    release = await begun(connection)
    await Load(failing=1.0).serve(connection, release, 200)
    await Controller(ReleasesConfig()).tick(connection)
    release = await standing(connection, release)
    assert release.state is State.ROLLED_BACK, release.told
    assert await require_replayed(connection, release) > 0
