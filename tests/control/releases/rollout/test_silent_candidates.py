"""Candidates that answer nobody, refuse, or are given up before their first text: nothing measured is not quick."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import pytest

from control.releases.machine import State
from control.releases.rollout import evidence
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.shares import Sessions
from tests.control.releases.fleets import started
from tests.control.releases.rollout import traffic
from tests.control.releases.rollout.test_controller import (
    MARGINS,
    STAGES,
    begun,
    require_replayed,
    rolled_out,
    standing,
)
from tests.control.releases.rollout.traffic import Load


@pytest.mark.parametrize(
    ("instead", "part"),
    [
        (traffic.REFUSED, 0.3), (traffic.REFUSED_LATER, 0.3), (traffic.TOO_LONG, 0.3),
        (traffic.EMPTY, 1.0), (traffic.ENDED, 1.0),
    ],
)  # fmt: skip
async def test_a_candidate_that_answers_nothing_is_rolled_back(
    connection: asyncpg.Connection, instead: dict[str, Any], part: float
) -> None:
    release = await begun(connection, Controller(ReleasesConfig()))
    release = await rolled_out(connection, release, Load(instead=instead, part=part), looks=60)
    assert release.state is State.ROLLED_BACK, release.told
    assert "worse than tolerated" in release.reason
    assert await require_replayed(connection, release) > 0


@pytest.mark.parametrize("instead", [traffic.LIMITED, traffic.UNPLACED])
async def test_what_the_gateway_refuses_is_no_observation(
    connection: asyncpg.Connection, instead: dict[str, Any]
) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)
    await controller.tick(connection)
    release = await standing(connection, release)
    assert await Load(instead=instead, both=True).serve(connection, release, 20) == 40
    draw = evidence.Draw(most=1_000, sessions=Sessions(), share=1.0, secret="")
    found = await evidence.read(connection, release, await evidence.horizon(connection), draw)
    assert found.observations == ()


@pytest.mark.parametrize("code", ["superseded", "client_gone"])
async def test_a_slow_candidate_is_judged_by_those_who_type_on_before_its_text(
    connection: asyncpg.Connection, code: str
) -> None:
    choose = random.Random(2)  # those before typed on as well: the thresholds are of what was waited for
    before = [traffic.row(choose) for _ in range(3_000)]
    await traffic.write(connection, [one for one in before if one["ttft_ms"] <= choose.lognormvariate(5.0, 0.3)])
    release = await started(connection, stages=STAGES, margins=MARGINS)
    assert await Controller(ReleasesConfig()).tick(connection) == 1
    release = await standing(connection, release)
    release = await rolled_out(connection, release, Load(slower=5.0, typed_on=code), looks=60)
    assert release.state is State.ROLLED_BACK, release.told
    assert release.reason.startswith("worse than tolerated: time to first token")


async def test_sessions_whose_clients_all_leave_at_once_end_no_stage(connection: asyncpg.Connection) -> None:
    release = await begun(connection, Controller(ReleasesConfig()))
    release = await rolled_out(
        connection, release, Load(instead={**traffic.LEFT, "total_ms": 1.0}, both=True), looks=15
    )
    assert (release.state, release.stage) == (State.RUNNING, 1)
    assert "100 sessions of the candidate" in release.told + release.reason
