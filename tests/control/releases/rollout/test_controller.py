"""The controller on PostgreSQL: releases that are good, slow and failing, and one that is interrupted everywhere."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import msgspec
import pytest

from control.evals import store as evals_store
from control.fleet.edits import set_weight
from control.releases import store
from control.releases.judge import Policy, Thresholds, observe
from control.releases.judge import State as JudgeState
from control.releases.machine import Event, State
from control.releases.margins import Margins
from control.releases.release import Release
from control.releases.rollout import evidence
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.judging import replay
from control.slices.startable import SliceRule
from gateway.shadow.pair import Outcome
from tests.control.releases.fleets import FLEET, put_fleet, started
from tests.control.releases.rollout.traffic import Load, history, row, write

MARGINS = msgspec.json.encode(Margins(least_units=[100, 200, 300], cold_requests=10)).decode()
STAGES = (0.0, 0.05, 0.2, 0.4, 1.0)
"""Larger shares than anybody's, so that few sessions have to be drawn until an arm has its own."""


class Timer:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def begun(connection: asyncpg.Connection, controller: Controller, **values: Any) -> Release:
    await history(connection)
    release = await started(connection, **{"stages": STAGES, "margins": MARGINS, **values})
    assert await controller.tick(connection) == 1
    return await standing(connection, release)


async def standing(connection: asyncpg.Connection, release: Release) -> Release:
    found = await store.locked(connection, release.id)
    assert found is not None
    return found


async def looked(connection: asyncpg.Connection, controller: Controller, release: Release) -> Release:
    """The release after one more look."""
    await controller.tick(connection)
    return await standing(connection, release)


async def split(connection: asyncpg.Connection) -> float | None:
    model = (await store.fleet(connection)).model("m")
    assert model is not None
    return None if model.canary is None else model.canary.share


async def rolled_out(connection: asyncpg.Connection, release: Release, load: Load, looks: int = 400) -> Release:
    """Served and looked at by turns, until the release ends; each look by a controller that has just been started in
    every tenth case."""
    controller = Controller(ReleasesConfig())
    for look in range(looks):
        if look % 10 == 0:
            controller = Controller(ReleasesConfig())
        await load.serve(connection, release, 20)
        release = await looked(connection, controller, release)
        if release.state.ended:
            break
    return release


async def require_replayed(connection: asyncpg.Connection, release: Release) -> int:
    """Every verdict is what it was, to the bit; returns how many there were."""
    _, steps = replay(release, await store.steps_of(connection, release.id))
    assert all(each.same for each in steps)
    return len(steps)


@pytest.mark.parametrize("drained", ["new", "fresh"])
async def test_a_release_does_not_begin_on_a_pool_that_was_drained_while_it_waited(
    connection: asyncpg.Connection, drained: str
) -> None:
    """Its first sessions would find no engine. A fleet refuses to drain pools only once a release splits sessions."""
    await history(connection)
    release = await started(connection, stages=(0.05, 1.0), control_pool="fresh")
    state = FLEET
    for weight, expected in ((0.0, (State.WAITING, None)), (1.0, (State.RUNNING, 0.05))):
        state = set_weight(state, drained, f"{drained}-0", weight, force=True)
        await put_fleet(connection, state)
        await Controller(ReleasesConfig()).tick(connection)
        release = await standing(connection, release)
        assert (release.state, await split(connection)) == expected
        assert (f"no replica of the pool '{drained}' takes load" in release.told) == (weight == 0)


async def test_a_release_does_not_begin_on_a_pool_that_is_drained_while_its_baseline_is_read(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look had read the fleet before, and the baseline's requests take seconds."""
    await history(connection)
    release = await started(connection, stages=(0.05, 1.0))
    read = evidence.baseline

    async def slow(*arguments: Any, **options: Any) -> Any:
        await put_fleet(connection, set_weight(FLEET, "new", "new-0", 0.0, force=True))
        return await read(*arguments, **options)

    monkeypatch.setattr(evidence, "baseline", slow)
    await Controller(ReleasesConfig()).tick(connection)
    assert ((await standing(connection, release)).state, await split(connection)) == (State.WAITING, None)


async def test_equal_parts_of_organizations_that_do_not_divide_the_baseline_hold_nobody_up(
    connection: asyncpg.Connection,
) -> None:
    """As with p99.95, which needs all 20,000 requests that are read: three organizations have 19,998 in equal parts."""
    for number in range(3):
        organization_id = f"00000000-0000-0000-0000-{number:012}"
        await history(connection, 40, seed=number, organization_id=organization_id)
    margins = msgspec.json.encode(Margins(quantiles=[0.5])).decode()
    release = await started(connection, margins=margins)
    await Controller(ReleasesConfig(baseline_requests=20)).tick(connection)
    release = await standing(connection, release)
    assert (release.state, release.told) == (State.RUNNING, "")


async def test_a_good_candidate_goes_through_every_stage_to_all_traffic(connection: asyncpg.Connection) -> None:
    release = await begun(connection, Controller(ReleasesConfig()))
    assert await split(connection) == 0
    release = await rolled_out(connection, release, Load())
    assert release.state is State.PROMOTED, release.reason
    assert await split(connection) is None
    steps = await store.steps_of(connection, release.id)
    stages = [row["to_stage"] for row in steps if row["stage"] != row["to_stage"]]
    assert stages == [1, 2, 3, 4]
    said = [row["reason"].partition(" has")[0] for row in steps if row["to_stage"] > max(row["stage"], 1)]
    assert said == ["stage 2 of 5 (5 %)", "stage 3 of 5 (20 %)", "stage 4 of 5 (40 %)"]
    assert await require_replayed(connection, release) > 10
    traced = await connection.fetchval("SELECT count(*) FROM gateway.request_traces WHERE release IS NOT NULL")
    assert sum(row["requests"] for row in steps) == traced, "none lost, none twice"


async def test_a_worse_candidate_is_rolled_back_and_leaves_no_split(connection: asyncpg.Connection) -> None:
    release = await begun(connection, Controller(ReleasesConfig()))
    release = await rolled_out(connection, release, Load(slower=1.3))
    assert release.state is State.ROLLED_BACK, release.reason
    assert "worse than tolerated" in release.reason
    model = (await store.fleet(connection)).model("m")
    assert model is not None
    assert (model.pool, model.canary) == ("old", None)
    assert await require_replayed(connection, release) > 0


async def test_too_little_history_is_told_and_waited_for(connection: asyncpg.Connection) -> None:
    timer = Timer()
    controller = Controller(ReleasesConfig(), timer)
    release = await started(connection, stages=STAGES, margins=MARGINS)
    assert await controller.tick(connection) == 0
    assert "answered nothing" in (await standing(connection, release)).told
    await history(connection, 400)
    timer.now_s += 60
    await controller.tick(connection)
    waiting = await standing(connection, release)
    assert waiting.state is State.WAITING
    assert "the baseline has 400 requests, and 1000 are needed to measure the quantile 0.99" in waiting.told
    await history(connection, 700)
    timer.now_s += 60
    assert await controller.tick(connection) == 1
    assert (await standing(connection, release)).state is State.RUNNING


async def test_rows_that_are_committed_late_are_neither_lost_nor_taken_twice(
    fresh_postgres_url: str, connection: asyncpg.Connection
) -> None:
    """A gateway that began to write before another, and ends after it and after a step."""
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)
    await controller.tick(connection)
    load = Load()
    slow = await asyncpg.connect(fresh_postgres_url)
    writing = slow.transaction()
    await writing.start()
    late = await load.serve(slow, release, 5)
    quick = await load.serve(connection, release, 7)
    await controller.tick(connection)
    await writing.commit()
    await controller.tick(connection)
    await controller.tick(connection)
    steps = await store.steps_of(connection, release.id)
    assert sum(row["requests"] for row in steps) == late + quick
    units = [each.unit for row in steps for each in evidence.unpacked(row["evidence"]).observations]
    assert len(set(units)) == late + quick
    await slow.close()


async def test_of_large_traffic_whole_sessions_are_drawn(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig(requests_per_step=100))
    release = await begun(connection, controller)
    await controller.tick(connection)
    load = Load()
    await load.serve(connection, release, 400)
    await controller.tick(connection)
    [row] = [row for row in await store.steps_of(connection, release.id) if row["requests"]]
    assert row["sampled"] == pytest.approx(100 / 800, rel=0.01)
    assert 60 <= row["requests"] <= 140
    arms = [each.arm for each in evidence.unpacked(row["evidence"]).observations]
    assert 0.3 < arms.count(arms[0]) / len(arms) < 0.7
    assert await controller.tick(connection) == 0, "the others are not taken later"


async def test_a_session_that_floods_takes_no_others_place(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig(requests_per_step=1_000))
    release = await begun(connection, controller)
    await controller.tick(connection)
    choose = random.Random(3)
    of: dict[str, Any] = {"side": "control", "release": str(release.id), "unit": 7}
    await write(connection, [row(choose, **of) for _ in range(6_000)])
    served = await Load().serve(connection, release, 300)
    await controller.tick(connection)
    [step] = [each for each in await store.steps_of(connection, release.id) if each["requests"]]
    assert step["sampled"] == 1
    units = [each.unit for each in evidence.unpacked(step["evidence"]).observations]
    assert (units.count(7), len(units)) == (evidence.OF_A_SESSION, evidence.OF_A_SESSION + served)


async def copied(
    connection: asyncpg.Connection, release: Release, outcome: Outcome, count: int, failure: str | None = None
) -> None:
    """Requests of as many sessions of the baseline, copied to the candidate. failure: the baseline's."""
    await connection.execute(
        "INSERT INTO gateway.shadow_pairs (id, model, release, baseline_pool, candidate_pool, unit, prompt_tokens,"
        " greedy, outcome, same_text, baseline_error_code) SELECT gen_random_uuid(), 'm', $1, 'old', 'new',"
        " number + (SELECT count(*) FROM gateway.shadow_pairs), 10, true, $2, CASE WHEN $2 = 'compared' THEN true END,"
        " $4 FROM generate_series(1, $3) AS number",
        str(release.id),
        outcome.value,
        count,
        failure,
    )


async def test_the_shadow_stage_ends_when_both_sides_answered_enough_copies(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller, shadow_least=50)
    await copied(connection, release, Outcome.COMPARED, 30)
    assert await controller.tick(connection) == 1
    assert (
        await standing(connection, release)
    ).reason == "missing: 20 more copies of requests that both sides answered"
    await connection.execute("DELETE FROM gateway.shadow_pairs")
    await copied(connection, release, Outcome.COMPARED, 20)
    await copied(connection, release, Outcome.FAILED, 2)
    await copied(connection, release, Outcome.LATE, 20)
    assert await controller.tick(connection) == 1, "what was consumed counts, though its retention is over"
    assert (await standing(connection, release)).stage == 1
    assert await require_replayed(connection, release) == 2


async def test_a_candidate_that_answers_few_copies_never_serves_a_customer(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller, shadow_least=50)
    await copied(connection, release, Outcome.FAILED, 20)
    await copied(connection, release, Outcome.COMPARED, 3)
    release = await looked(connection, controller, release)
    assert (release.state, release.stage) == (State.ROLLED_BACK, 0)
    assert release.reason.startswith(
        "worse than tolerated: copies that failed, sessions with a copy at which one side alone"
    )
    assert "20 candidate to 0 customers' own engines" in release.reason
    await connection.execute("DELETE FROM gateway.shadow_pairs")
    _, [step] = replay(release, await store.steps_of(connection, release.id))
    assert (step.decision, step.event, step.same) == ("roll_back", Event.FAIL, True)


async def test_a_candidate_that_fails_at_what_its_baseline_fails_at_goes_on(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller, shadow_least=50)
    for outcome, failure in ((Outcome.FAILED, "engine_refused"), (Outcome.FAILED, None), (Outcome.ANSWERED, "x")):
        await copied(connection, release, outcome, 40, failure)
        await copied(connection, release, Outcome.COMPARED, 20)
    release = await looked(connection, controller, release)
    assert (release.state, release.stage) == (State.RUNNING, 1), release.reason
    batch = evidence.unpacked((await store.steps_of(connection, release.id))[-1]["evidence"])
    assert sorted(copy.worse for copy in batch.copies) == [-1] * 40 + [0] * 100 + [1] * 40
    assert await require_replayed(connection, release) == 1


async def test_the_gate_may_fail_slices_by_their_part_of_the_releases_alpha_and_that_rolls_back(
    connection: asyncpg.Connection,
) -> None:
    controller = Controller(ReleasesConfig())
    margins = msgspec.json.encode(Margins(alpha=0.1, promotion_alpha=0.02)).decode()
    rule = msgspec.json.encode(
        SliceRule(margin=0.03, margins={"facts": 0.04}, budget_items=900, correlation=0.1)
    ).decode()
    release = await begun(connection, controller, slices=["facts"], slice_rule=rule, margins=margins)
    assert release.comparison_id is not None
    asked = await evals_store.comparison(connection, release.comparison_id)
    assert asked.rule == evals_store.Rule(
        margin=0.03,
        margins={"facts": 0.04},
        alpha=0.02,
        fail_alpha=Policy(alpha=0.1).alpha_of("slices"),
        correlation=0.1,
    )
    assert asked.budget_items == 900
    await connection.execute("UPDATE evals.comparisons SET status = 'done', decision = 'fail'")
    release = await looked(connection, controller, release)
    assert (release.state, release.reason) == (State.ROLLED_BACK, "the gate failed the candidate's slices")
    assert await require_replayed(connection, release) == 1


async def test_copies_of_a_stage_with_customers_roll_back_and_none_are_demanded(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller, shadow_least=10)
    await copied(connection, release, Outcome.COMPARED, 10)
    await controller.tick(connection)
    load = Load()
    for _ in range(30):  # no copy of this stage is there
        release = await standing(connection, release)
        if release.stage == 2:
            break
        await load.serve(connection, release, 60)
        await controller.tick(connection)
    assert (release.state, release.stage) == (State.RUNNING, 2)
    await copied(connection, release, Outcome.FAILED, 49)
    release = await looked(connection, controller, release)
    assert (release.state, release.stage) == (State.ROLLED_BACK, 2)
    assert release.reason.startswith(
        "worse than tolerated: copies that failed, sessions with a copy at which one side alone"
    )
    assert await require_replayed(connection, release) > 2
    assert await split(connection) is None


@pytest.mark.parametrize(("baseline", "state", "said"), [(40, State.ROLLED_BACK, "50 candidate to 0"), (0, None, "")])
async def test_copies_without_a_text_where_the_customer_had_one_are_failed_ones(
    connection: asyncpg.Connection, baseline: int, state: State | None, said: str
) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller, shadow_least=50)
    await copied(connection, release, Outcome.COMPARED, 50)
    await connection.execute(
        "UPDATE gateway.shadow_pairs SET candidate_characters = 0, baseline_characters = $1", baseline
    )
    release = await looked(connection, controller, release)
    assert (release.state, release.stage) == ((state, 0) if state else (State.RUNNING, 1))
    assert said in release.reason


async def test_votes_of_reviewers_are_counted_once_and_can_roll_back(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)
    await controller.tick(connection)
    for unit in range(60):
        await connection.execute(
            "INSERT INTO gateway.review_coins (release, unit, worse) VALUES ($1, $2, $3)",
            str(release.id),
            unit,
            unit > 0,
        )
        await controller.tick(connection)
        if (release := await standing(connection, release)).state.ended:
            break
    assert release.state is State.ROLLED_BACK
    assert release.reason.startswith("worse than tolerated: reviewers' votes")
    batches = [evidence.unpacked(row["evidence"]) for row in await store.steps_of(connection, release.id)]
    votes = await connection.fetchval("SELECT count(*) FROM gateway.review_coins")
    assert (sum(batch.worse for batch in batches), sum(batch.better for batch in batches)) == (votes - 1, 1)
    assert await require_replayed(connection, release) > 5


@pytest.mark.parametrize("change", ["settings", "row"])
async def test_a_fleet_that_another_hand_changes_ends_the_release_without_a_split(
    connection: asyncpg.Connection, change: str
) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)
    await controller.tick(connection)
    if change == "row":
        await connection.execute("DELETE FROM gateway.releases")
    else:
        await put_fleet(connection)
    await controller.tick(connection)
    assert await split(connection) is None
    if change != "row":
        lost = await standing(connection, release)
        assert (lost.state, (await store.steps_of(connection, release.id))[-1]["event"]) == (State.ROLLED_BACK, "lost")


async def test_a_held_release_is_judged_on_and_goes_on_when_it_is_resumed(connection: asyncpg.Connection) -> None:
    controller, load = Controller(ReleasesConfig()), Load()
    release = await begun(connection, controller)
    await controller.tick(connection)
    async with connection.transaction():
        release = await standing(connection, release)
        await store.step(connection, release, Event.HOLD, reason="lunch", actor=None, by="ada")
    await load.serve(connection, release, 150)
    release = await looked(connection, controller, release)
    assert (release.state, release.stage) == (State.HELD, 1)
    assert release.reason.startswith("held; otherwise: ")
    async with connection.transaction():
        await store.step(connection, release, Event.RESUME, reason="back", actor=None, by="ada")
    assert await controller.tick(connection) == 1
    release = await standing(connection, release)
    assert (release.state, release.stage) == (State.RUNNING, 2), "what came meanwhile was enough"
    assert await controller.tick(connection) == 0, "and counts for one stage alone"
    assert await require_replayed(connection, release) == 3


async def test_a_release_whose_budget_is_spent_goes_on_by_a_granted_one_alone(connection: asyncpg.Connection) -> None:
    spent = msgspec.json.encode(Margins(least_units=[100, 200, 300], cold_requests=10, most_units=100)).decode()
    controller, load = Controller(ReleasesConfig()), Load()
    release = await begun(connection, controller, margins=spent)
    await controller.tick(connection)
    await load.serve(connection, release, 60)
    release = await looked(connection, controller, release)
    assert release.state is State.HELD
    assert "the budget of 100 sessions is spent" in release.reason
    for more_units, state in ((0, State.HELD), (1, State.RUNNING)):
        async with connection.transaction():
            await store.step(
                connection, release, Event.RESUME, reason="on", actor=None, by="ada", more_units=more_units
            )
        release = await looked(connection, controller, release)
        assert (release.state, release.more_units) == (state, more_units), "one beyond the 110 that were counted"
    async with connection.transaction():
        release = await store.step(connection, release, Event.HOLD, reason="wait", actor=None, by="ada")
        await store.step(connection, release, Event.RESUME, reason="on", actor=None, by="ada", more_units=199)
    await load.serve(connection, release, 60)
    await Controller(ReleasesConfig()).tick(connection)
    release = await standing(connection, release)
    assert (release.state, release.stage) == (State.RUNNING, 2), "what was granted is known to a worker that starts"
    await load.serve(connection, release, 60)
    release = await looked(connection, controller, release)
    assert "the budget of 310 sessions is spent" in release.reason
    assert await require_replayed(connection, release) > 3


async def test_a_worker_that_starts_folds_a_stages_steps_together(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold copies all sessions: one for each of a day's 40,000 steps would keep every release from being judged."""
    controller, load = Controller(ReleasesConfig()), Load()
    release = await begun(connection, controller)
    for _ in range(12):
        await load.serve(connection, release, 20)
        release = await looked(connection, controller, release)
    folded: list[int] = []

    def counted(state: JudgeState, policy: Policy, thresholds: Thresholds, stage: int, batch: Any) -> JudgeState:
        folded.append(stage)
        return observe(state, policy, thresholds, stage, batch)

    monkeypatch.setattr("control.releases.rollout.judging.observe", counted)
    monkeypatch.setattr("control.releases.rollout.controller.STEPS_AT_ONCE", 10)
    await load.serve(connection, release, 20)
    release = await looked(connection, Controller(ReleasesConfig()), release)
    assert (release.step, folded) == (15, [0, 1, 1, 1]), "two reads of steps, and the new one"
    assert await require_replayed(connection, release) == 13


async def test_a_database_that_was_copied_is_not_counted_on(connection: asyncpg.Connection) -> None:
    controller = Controller(ReleasesConfig())
    release = await begun(connection, controller)
    await connection.execute("UPDATE gateway.releases SET watermark = watermark + 1000000")
    release = await looked(connection, controller, release)
    assert (release.state, await split(connection)) == (State.ROLLED_BACK, None)
    assert "copy" in release.reason


async def test_with_no_release_a_tick_does_nothing(connection: asyncpg.Connection) -> None:
    await put_fleet(connection, FLEET)
    assert await Controller(ReleasesConfig()).tick(connection) == 0
    assert (await store.fleet(connection)).version == 1
