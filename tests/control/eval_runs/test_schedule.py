"""The nightly schedule: what of the settings makes one, and what it queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from celery.schedules import crontab

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from contracts.generation import Tier
from control.eval_runs import nights, tasks
from control.eval_runs.config import EvalsConfig
from control.eval_runs.night_plan import NightPlanner, moments
from control.evals import store
from gateway.desired import document
from storage.engine import connect


def test_a_night_is_asked_unless_the_schedule_is_empty() -> None:
    assert tasks.schedule(EvalsConfig(schedule="")) == {}
    assert tasks.schedule(EvalsConfig())[tasks.QUEUE_NIGHT]["schedule"] == crontab(minute="0", hour="2")
    entry = tasks.schedule(EvalsConfig(schedule="30 2 * * *"))[tasks.QUEUE_NIGHT]
    assert entry["schedule"] == crontab(minute="30", hour="2")


@pytest.mark.parametrize("schedule", ["2", "* * *", "61 2 * * *", "every night"])
def test_a_schedule_that_is_none_stops_the_start(schedule: str) -> None:
    with pytest.raises(ConfigError, match=r"evals\.schedule: .*'0 2 \* \* \*'"):
        EvalsConfig(schedule=schedule).check()


MODELS = (
    Model("one", Tier.CHAT, "a", 4_096),
    Model("two", Tier.CHAT, "b", 4_096, engine_model="two-engine"),
    Model("code", Tier.AUTOCOMPLETE, "a", 4_096),
)


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[Any]:
    connection: Any = await connect(fresh_postgres_url)
    fleet = document.encode(MODELS, (Pool("a", "sglang"), Pool("b", "sglang")))
    await connection.execute("INSERT INTO gateway.desired_states (version, document) VALUES (1, $1)", fleet)
    yield connection
    await connection.close()


def planner(**given: Any) -> NightPlanner:
    return NightPlanner(EvalsConfig(**given), {"two": ("facts",)}, lambda pool: {"engine": f"engine of {pool}"})


async def test_every_model_is_queued_once_a_night_on_its_own_pool_and_in_the_audit_log(
    connection: Any,
) -> None:
    asked, night = planner(slices=("facts", "code_exact", "lists"), items=7), date(2026, 11, 22)
    queued = await asked.queue(connection, night)
    assert await asked.queue(connection, night) == []
    runs = [await store.run(connection, each) for each in queued]
    assert [(run.model, run.pool, run.items, run.night) for run in runs] == [
        ("one", "a", 14, night), ("two", "b", 14, night), ("code", "a", 7, night),
    ]  # fmt: skip
    logged = await connection.fetch("SELECT action, subject_id, actor_name FROM gateway.audit_log ORDER BY id")
    assert [tuple(row) for row in logged] == [("eval.run", str(each), "slipstream worker") for each in queued]
    assert len(await asked.queue(connection, night + timedelta(days=1))) == 3
    assert len(await planner(slices=("facts",)).queue(connection, night + timedelta(days=2))) == 2


async def test_a_night_notes_what_the_models_version_is(connection: Any) -> None:
    await planner(slices=("facts",)).queue(connection, date(2026, 11, 22))
    versions = await connection.fetch("SELECT version::text FROM evals.runs ORDER BY model")
    assert [msgspec.json.decode(row["version"]) for row in versions] == [
        {"pool": "a", "engine_model": "one", "driver": "sglang", "engine": "engine of a"},
        {"pool": "b", "engine_model": "two-engine", "driver": "sglang", "engine": "engine of b"},
    ]


async def test_a_model_is_asked_its_own_slices_and_a_code_model_no_conversations(connection: Any) -> None:
    await planner().report(connection, datetime(2026, 11, 22, 12, tzinfo=UTC))
    plan = (await nights.status(connection)).plan
    assert plan is not None
    assert plan.slices["two"] == ["facts"]
    assert set(plan.slices["one"]) > {"facts", "lists"}
    assert not [name for name in plan.slices["one"] if name.startswith("code_")]
    assert set(plan.slices["code"]) == {"code_exact", "code_similarity", "code_parses", "code_tests"}


@pytest.mark.parametrize(
    ("schedule", "now", "night"),
    [
        ("30 23 * * *", datetime(2026, 11, 22, 23, 30, 1), date(2026, 11, 22)),
        ("30 23 * * *", datetime(2026, 11, 23, 0, 10), date(2026, 11, 22)),
        ("0 0 * * *", datetime(2026, 11, 22, 23, 59, 59), date(2026, 11, 23)),
        ("0 0 * * *", datetime(2026, 11, 23, 0, 0, 1), date(2026, 11, 23)),
        ("0 2 * * *", datetime(2026, 11, 23, 2, 50), date(2026, 11, 23)),
        ("", datetime(2026, 11, 23, 2, 50), date(2026, 11, 23)),
    ],
)
def test_a_task_that_waited_or_has_a_slow_clock_asks_its_own_night(schedule: str, now: datetime, night: date) -> None:
    """A night that takes another one's date leaves that one out: a model is asked once for each date."""
    assert planner(schedule=schedule).night_at(now.replace(tzinfo=UTC)) == night


async def test_models_of_another_provider_are_asked_only_where_they_are_named(connection: Any) -> None:
    models = (*MODELS, Model("theirs", Tier.CHAT, "hosted", 4_096))
    pools = (Pool("a", "sglang"), Pool("b", "sglang"), Pool("hosted", "openai"))
    await connection.execute(
        "INSERT INTO gateway.desired_states (version, document) VALUES (2, $1)", document.encode(models, pools)
    )
    for named, night, asked in [
        ((), date(2026, 11, 22), {"one", "two", "code"}),
        (("theirs",), date(2026, 11, 23), {"theirs"}),
    ]:
        queued = await planner(slices=("facts", "code_exact"), models=named).queue(connection, night)
        assert {(await store.run(connection, each)).model for each in queued} == asked


async def test_a_young_deployment_is_asked_nothing_and_says_when_its_first_night_is(connection: Any) -> None:
    made: datetime = await connection.fetchval("SELECT min(created_at) FROM gateway.desired_states")
    asked = planner(schedule="0 * * * *")
    assert await asked.is_young(connection, made + timedelta(hours=5))
    assert not await asked.is_young(connection, made + timedelta(hours=6))
    await asked.report(connection, made)
    plan = (await nights.status(connection)).plan
    assert plan is not None
    assert plan.previous_at is None
    assert plan.next_at is not None
    assert timedelta(hours=6) <= plan.next_at - made < timedelta(hours=7)


@pytest.mark.parametrize(
    ("schedule", "before", "after"),
    [
        ("0 2 * * *", datetime(2026, 11, 22, 2), datetime(2026, 11, 23, 2)),
        ("30 2,14 * * *", datetime(2026, 11, 22, 2, 30), datetime(2026, 11, 22, 14, 30)),
        ("0 2 * * 1-5", datetime(2026, 11, 20, 2), datetime(2026, 11, 23, 2)),
        ("0 0 29 2 *", datetime(2024, 2, 29), datetime(2028, 2, 29)),
    ],
)
def test_moments_of_a_schedule_are_those_of_its_crontab(schedule: str, before: datetime, after: datetime) -> None:
    when, now = EvalsConfig(schedule=schedule).crontab(), datetime(2026, 11, 22, 12, tzinfo=UTC)  # a Sunday
    assert when is not None
    assert next(moments(when, now, -1)) == before.replace(tzinfo=UTC)
    assert next(moments(when, now, 1)) == after.replace(tzinfo=UTC)


def test_the_schedule_is_in_utc() -> None:
    when = EvalsConfig(schedule="0 2 * * *").crontab()
    assert when is not None
    before = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
    when.nowfun = lambda: before
    assert when.remaining_estimate(before) == timedelta(hours=1)
