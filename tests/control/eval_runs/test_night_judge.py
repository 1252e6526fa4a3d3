"""Nights on a real PostgreSQL: judged once, kept, sent to webhooks and metrics, and a promotion undone or offered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from prometheus_client import CollectorRegistry

import evals.nights
from control.eval_runs import nights
from control.eval_runs.config import EvalsConfig
from control.eval_runs.night_judge import NightJudge
from control.eval_runs.night_metrics import NightMetrics
from control.eval_runs.night_plan import NightPlanner
from control.eval_runs.nights import EvalNight, ModelNight, NightPlan, missing
from control.evals import store
from control.releases import store as releases
from control.releases.machine import Event, State
from control.releases.release import Release
from evals.nights import Night, NightRule, NightVerdict
from storage.engine import connect
from storage.tables.evals import Decision, Status
from tests.control.releases.fleets import FLEET, STAGES, put_fleet, started

ITEMS = 40
ITEM = """
INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms)
SELECT $1, $2, seed, seed::text, 'a', score, 1 FROM unnest($3::bigint[], $4::float[]) AS given (seed, score)
"""
VERSIONED = """
WITH made AS (INSERT INTO evals.slice_versions (slice, version, about, goal) VALUES ($2, '1', 'a', 0.9)
              ON CONFLICT (slice, version) DO UPDATE SET about = 'a' RETURNING id)
UPDATE evals.run_slices SET slice_version_id = made.id FROM made WHERE run_id = $1 AND slice = $2
"""
ENDED = "UPDATE evals.runs SET status = $2, ended_at = now(), error = $3 WHERE id = $1"


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[Any]:
    connection = await connect(fresh_postgres_url)
    await put_fleet(connection)
    yield connection
    await connection.close()


@pytest.fixture
def today() -> date:
    """The day of the test, which need not be that of the run's start."""
    return datetime.now(UTC).date()


class Told:
    """What a judge has shown, and the judge."""

    def __init__(self, **given: Any) -> None:
        planner = NightPlanner(EvalsConfig(**given), {}, lambda pool: {})
        self.shown: list[EvalNight] = []
        self.judge = NightJudge(planner, self._tell)

    def _tell(self, found: Any) -> None:
        self.shown = list(found)


async def asked(
    connection: Any,
    night: date,
    *,
    pool: str = "old",
    lost: float = 0.0,
    status: Status = Status.DONE,
    error: str | None = None,
    **version: str,
) -> UUID:
    """A night of the model `m` that has ended; of the slice `facts` a part of the items was lost. version: what it
    ran, besides the pool."""
    version = {"pool": pool, "engine_model": "m", **version}
    slices = {"facts": ITEMS, "lists": ITEMS}
    run_id = await store.queue_night(connection, model="m", pool=pool, slices=slices, night=night, version=version)
    assert run_id is not None
    first = store.panel_seed(night)
    for name, share in (("facts", lost), ("lists", 0.0)):
        await connection.execute(VERSIONED, run_id, name)
        scores = [float(place >= share * ITEMS) for place in range(ITEMS)]
        await connection.execute(ITEM, run_id, name, list(range(first, first + ITEMS)), scores)
    await connection.execute(ENDED, run_id, status.value, error)
    return run_id


async def history(connection: Any, today: date, count: int = 6) -> None:
    for back in range(count, 0, -1):
        await asked(connection, today - timedelta(days=back))


async def promoted(connection: Any) -> Release:
    """A release whose candidate has taken its model's place."""
    release = await started(connection)
    async with connection.transaction():
        fixed: dict[str, Any] = {"policy": "{}", "thresholds": "{}"}
        release = await releases.step(connection, release, Event.BEGIN, reason="begun", actor=None, **fixed)
        while release.state is not State.PROMOTED:
            release = await releases.step(connection, release, Event.PROMOTE, reason="by hand", actor=None)
    assert release.stage == len(STAGES) - 1
    return release


async def now(connection: Any, release: Release) -> Release:
    """The release as it is stored."""
    found = await releases.locked(connection, release.id)
    assert found is not None
    return found


async def operator(connection: Any) -> UUID:
    made: UUID = await connection.fetchval(
        "INSERT INTO gateway.organizations (name, operator) VALUES ('us', true) RETURNING id"
    )
    return made


async def served_pool(connection: Any) -> tuple[str, str | None]:
    model = (await releases.fleet(connection)).model("m")
    assert model is not None
    return model.pool, model.engine_model


async def test_a_night_is_judged_once_and_kept(connection: Any, today: date) -> None:
    await history(connection, today)
    run_id = await asked(connection, today)
    told = Told()
    assert await told.judge.look(connection) == 3, "nights of more than three days ago are left alone"
    assert await told.judge.look(connection) == 0
    [last] = told.shown
    assert (last.run_id, last.model, last.pool, last.night) == (run_id, "m", "old", today)
    assert (last.decision, last.reason) == (Decision.PASS, "all of 2 slices passed")
    assert last.version_since == today - timedelta(days=6)
    assert [(one.slice, one.items, one.score) for one in last.slices] == [("facts", 120, 1.0), ("lists", 120, 1.0)]
    assert await connection.fetchval("SELECT count(*) FROM gateway.webhook_events") == 0


async def test_a_worse_night_after_a_promotion_offers_its_rollback_and_tells_the_operators_webhooks(
    connection: Any,
    today: date,
) -> None:
    organization = await operator(connection)
    await history(connection, today)
    release = await promoted(connection)
    run_id = await asked(connection, today, pool="new", lost=0.75)
    told = Told()
    await told.judge.look(connection)
    [last] = told.shown
    assert last.decision is Decision.FAIL
    assert last.changed == ["pool: old -> new"]
    assert last.rollback_release_id == release.id
    assert await served_pool(connection) == ("new", "m-2"), "it is offered, and done by hand"
    [event] = await connection.fetch("SELECT organization_id, type, data::text FROM gateway.webhook_events")
    assert (event["organization_id"], event["type"]) == (organization, "evals.night_failed")
    data = msgspec.json.decode(event["data"])
    assert (data["model"], data["run_id"], data["release_id"]) == ("m", str(run_id), str(release.id))
    assert (data["changed"], data["rolled_back"]) == (["pool: old -> new"], False)
    assert [one["slice"] for one in data["slices"]] == ["facts"]
    async with connection.transaction():
        done = await releases.step(
            connection, await now(connection, release), Event.ROLL_BACK, reason="worse", actor=None
        )
    assert (done.state, await served_pool(connection)) == (State.ROLLED_BACK, ("old", None))
    [last] = await nights.newest_by_model(connection, ["m"])
    assert last.rollback_release_id is None, "there is nothing to roll back any more"


async def test_the_rollback_is_automatic_where_it_is_set(connection: Any, today: date) -> None:
    await operator(connection)
    await history(connection, today)
    release = await promoted(connection)
    await asked(connection, today, pool="new", lost=0.75)
    await Told(automatic_rollback=True).judge.look(connection)
    after = await now(connection, release)
    assert (after.state, await served_pool(connection)) == (State.ROLLED_BACK, ("old", None))
    assert after.reason == f"the night of {today} found it worse than the version before: facts"
    data = await connection.fetchval("SELECT data::text FROM gateway.webhook_events")
    assert msgspec.json.decode(data)["rolled_back"] is True


async def test_what_is_worse_without_a_promotion_rolls_nothing_back(connection: Any, today: date) -> None:
    await history(connection, today)
    release = await promoted(connection)
    await connection.execute("UPDATE gateway.releases SET ended_at = now() - interval '16 days'")
    await asked(connection, today, pool="new", lost=0.75)
    told = Told(automatic_rollback=True)
    await told.judge.look(connection)
    assert [(one.decision, one.rollback_release_id) for one in told.shown] == [(Decision.FAIL, None)]
    assert (await now(connection, release)).state is State.PROMOTED


async def test_a_change_behind_a_promotion_does_not_undo_the_promotion(connection: Any, today: date) -> None:
    """The promoted pool was as good as the one before, until its engines were started otherwise."""
    for back in range(12, 6, -1):
        await asked(connection, today - timedelta(days=back))
    release = await promoted(connection)
    await connection.execute("UPDATE gateway.releases SET ended_at = now() - interval '7 days'")
    for back in range(6, 0, -1):
        await asked(connection, today - timedelta(days=back), pool="new")
    await asked(connection, today, pool="new", lost=0.75, quantization="fp8")
    told = Told(automatic_rollback=True)
    await told.judge.look(connection)
    assert (told.shown[0].decision, told.shown[0].changed) == (Decision.FAIL, ["quantization: none -> fp8"])
    assert told.shown[0].rollback_release_id is None
    assert (await now(connection, release)).state is State.PROMOTED


async def test_a_rollback_that_the_fleet_does_not_allow_leaves_the_verdict(connection: Any, today: date) -> None:
    await history(connection, today)
    await promoted(connection)
    drained = "UPDATE gateway.desired_states SET document = jsonb_set(document, '{pools,0,replicas}', '[]')"
    assert (await releases.fleet(connection)).pools[0].name == "old"
    await connection.execute(drained)
    await asked(connection, today, pool="new", lost=0.75)
    told = Told(automatic_rollback=True)
    await told.judge.look(connection)
    assert told.shown[0].decision is Decision.FAIL
    assert (await served_pool(connection))[0] == "new"


@pytest.mark.parametrize(
    ("status", "error", "why"),
    [(Status.FAILED, "no such pool", "no such pool"), (Status.CANCELLED, None, "cancelled")],
)
async def test_a_run_that_did_not_finish_is_inconclusive_and_no_history(
    connection: Any, today: date, status: Status, error: str | None, why: str
) -> None:
    await history(connection, today)
    run_id = await asked(connection, today, status=status, error=error)
    await Told().judge.look(connection)
    judged = await connection.fetchrow("SELECT * FROM evals.nights WHERE run_id = $1", run_id)
    assert (judged["decision"], msgspec.json.decode(judged["slices"])) == ("inconclusive", [])
    assert judged["reason"] == f"the run did not finish: {why}; 80 of 80 items were answered"
    found = await nights.status(connection)
    assert any("decided nothing: the run did not finish" in one for one in found.missing) == bool(found.plan.slices)  # type: ignore[union-attr]


async def test_a_fail_is_shown_until_a_night_is_judged_again_or_its_model_is_gone(connection: Any, today: date) -> None:
    for back in range(7, 1, -1):
        await asked(connection, today - timedelta(days=back))
    worse = await asked(connection, today - timedelta(days=1), pool="new", lost=0.75)
    await asked(connection, today, pool="new", status=Status.FAILED, error="the engines are away")
    told = Told()
    await told.judge.look(connection)
    assert [(one.run_id, one.decision) for one in told.shown] == [(worse, Decision.FAIL)]
    await put_fleet(connection, msgspec.structs.replace(FLEET, models=FLEET.models[1:]))
    gone = Told()
    await gone.judge.look(connection)
    assert gone.shown == []


async def test_a_worker_that_holds_a_run_is_not_missed(connection: Any) -> None:
    await Told().judge.look(connection)
    await connection.execute("UPDATE evals.night_plan SET reported_at = now() - interval '1 hour'")
    assert any("has reported since" in one for one in (await nights.status(connection)).missing)
    run_id = await store.queue_run(connection, model="m", slices={"facts": 1})
    held = "UPDATE evals.runs SET lease_until = now() + interval '10 seconds' WHERE id = $1"
    await connection.execute(held, run_id)
    assert not any("has reported since" in one for one in (await nights.status(connection)).missing)


async def test_metrics_name_the_slice_and_the_change_until_a_night_passes(connection: Any, today: date) -> None:
    registry = CollectorRegistry()
    metrics = NightMetrics(registry)
    await history(connection, today)
    await asked(connection, today, pool="new", lost=0.75)
    told = Told()
    await told.judge.look(connection)
    metrics.show(told.shown)
    labels = {"model": "m", "pool": "new", "slice": "facts", "change": "pool: old -> new"}
    failed = "slipstream_eval_night_slice_failed"
    assert registry.get_sample_value(failed, labels) == 1
    assert registry.get_sample_value(
        "slipstream_eval_night_slices", {"model": "m", "pool": "new", "decision": "fail"}
    ) == 1  # fmt: skip
    await asked(connection, today + timedelta(days=1), pool="old")
    await told.judge.look(connection)
    metrics.show(told.shown)
    assert registry.get_sample_value(failed, labels) is None


async def test_what_another_worker_has_judged_meanwhile_is_left_alone(
    connection: Any, today: date, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await history(connection, today)
    await promoted(connection)
    await asked(connection, today, pool="new", lost=0.75)
    found = await nights.unjudged(connection, 3)
    told = Told(automatic_rollback=True)
    await told.judge.look(connection)

    async def as_seen_before(*_: object) -> list[UUID]:
        return found

    monkeypatch.setattr(nights, "unjudged", as_seen_before)
    caplog.clear()
    await Told(automatic_rollback=True).judge.look(connection)
    assert [record.message for record in caplog.records if record.name.startswith("control.eval_runs")] == []


async def test_a_night_that_cannot_be_judged_is_inconclusive_and_stops_no_other(
    connection: Any, today: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await asked(connection, today - timedelta(days=1))
    later = await asked(connection, today)
    judge = evals.nights.judge

    def judged(found: Sequence[Night], rule: NightRule) -> NightVerdict:
        if found[-1].night < today:
            raise ZeroDivisionError
        return judge(found, rule)

    monkeypatch.setattr(evals.nights, "judge", judged)
    assert await Told().judge.look(connection) == 2
    reasons = {
        row["run_id"]: row["reason"] for row in await connection.fetch("SELECT run_id, reason FROM evals.nights")
    }
    assert reasons[broken] == "the judge failed: ZeroDivisionError()"
    assert "judge failed" not in reasons[later]


async def test_only_the_newest_nights_have_their_items_counted(connection: Any, today: date) -> None:
    await history(connection, today, 5)
    [planned] = msgspec.json.decode(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {nights.LAST}"))
    assert scans(planned["Plan"], "items") == 1
    [last] = (await nights.status(connection)).last
    assert (last.night, last.items, last.answered) == (today - timedelta(days=1), 80, 80)


def scans(plan: dict[str, Any], table: str) -> int:
    """How often a plan reads a table."""
    own = plan["Actual Loops"] if plan.get("Relation Name") == table else 0
    return int(own) + sum(scans(each, table) for each in plan.get("Plans", ()))


# what is missing

NOW = datetime(2026, 11, 28, 9, tzinfo=UTC)
PLAN = NightPlan(
    reported_at=NOW,
    schedule="0 2 * * *",
    previous_at=datetime(2026, 11, 28, 2, tzinfo=UTC),
    next_at=datetime(2026, 11, 29, 2, tzinfo=UTC),
    items=40,
    slices={"m": ["facts"]},
    automatic_rollback=False,
)
LAST = ModelNight(
    model="m", pool="old", night=date(2026, 11, 28), status=Status.DONE, answered=40, items=40,
    decision=Decision.PASS, reason="all of 1 slices passed",
)  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "last", "said"),
    [
        (None, [LAST], ["no worker of the queue `evals` has started since this release was installed"]),
        (PLAN, [LAST], []),
        (PLAN, [], ["m: no nightly run has started yet"]),
        (msgspec.structs.replace(PLAN, previous_at=None), [], []),
        (
            msgspec.structs.replace(PLAN, schedule=""),
            [LAST],
            ["evals.schedule is empty, so no nightly run is scheduled; "],
        ),
        (msgspec.structs.replace(PLAN, slices={}), [LAST], ["no model has slices, so there is nothing to ask"]),
        (
            msgspec.structs.replace(PLAN, reported_at=NOW - timedelta(hours=1)),
            [LAST],
            ["no worker of the queue `evals` has reported since 2026-11-28 08:00 UTC; start one"],
        ),
        (
            PLAN,
            [msgspec.structs.replace(LAST, night=date(2026, 11, 26))],
            ["m: the night of 2026-11-28 was skipped: no worker of the queue `evals` ran at 02:00 UTC"],
        ),
        (
            PLAN,
            [msgspec.structs.replace(LAST, decision=Decision.INCONCLUSIVE, reason="1 of 1 slices not decided: facts")],
            ["m: the night of 2026-11-28 decided nothing: 1 of 1 slices not decided: facts"],
        ),
    ],
)
def test_what_is_missing_is_said_in_a_sentence_each(
    plan: NightPlan | None, last: list[ModelNight], said: list[str]
) -> None:
    found = list(missing(plan, last, NOW))
    assert len(found) == len(said)
    assert all(one.startswith(start) for one, start in zip(found, said, strict=True))
