"""The nightly schedule: what of the settings makes one, and what it queues."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from celery.schedules import crontab

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from contracts.generation import Tier
from evals.runs import tasks
from evals.runs.config import EvalsConfig
from gateway.db.engine import connect
from gateway.desired import document
from gateway.evals import store


def test_nothing_is_asked_unless_a_schedule_is_set() -> None:
    assert tasks.schedule(EvalsConfig()) == {}
    entry = tasks.schedule(EvalsConfig(schedule="30 2 * * *"))[tasks.QUEUE_NIGHT]
    assert entry["schedule"] == crontab(minute="30", hour="2")


@pytest.mark.parametrize("schedule", ["2", "* * *", "61 2 * * *", "every night"])
def test_a_schedule_that_is_none_stops_the_start(schedule: str) -> None:
    with pytest.raises(ConfigError, match=r"evals\.schedule: .*'0 2 \* \* \*'"):
        EvalsConfig(schedule=schedule).check()


def test_a_slice_there_is_not_stops_the_start() -> None:
    EvalsConfig(schedule="0 2 * * 1-5", slices=("facts", "lists")).check()
    with pytest.raises(ConfigError, match=r"evals\.slices: there is no slice 'fact'; slices: facts, "):
        EvalsConfig(slices=("fact",)).check()


async def test_every_model_is_queued_once_a_night_on_its_own_pool_and_told_to_the_audit_log(
    module_postgres_url: str,
) -> None:
    models = (
        Model("one", Tier.CHAT, "a", 4_096),
        Model("two", Tier.CHAT, "b", 4_096),
        Model("code", Tier.AUTOCOMPLETE, "a", 4_096),
    )
    connection: Any = await connect(module_postgres_url)
    try:
        fleet = document.encode(models, (Pool("a", "sglang"), Pool("b", "sglang")))
        await connection.execute("INSERT INTO gateway.desired_states (version, document) VALUES (1, $1)", fleet)
        config, night = EvalsConfig(slices=("facts", "code_exact", "lists"), items=7), date(2026, 11, 22)
        queued = await tasks.queue_models(connection, config, night)
        assert await tasks.queue_models(connection, config, night) == []
        runs = [await store.run(connection, each) for each in queued]
        assert [(run.model, run.pool, run.items, run.night) for run in runs] == [
            ("one", "a", 14, night), ("two", "b", 14, night), ("code", "a", 7, night),
        ]  # fmt: skip
        logged = await connection.fetch("SELECT action, subject_id, actor_name FROM gateway.audit_log ORDER BY id")
        assert [tuple(row) for row in logged] == [("eval.run", str(each), "slipstream worker") for each in queued]
        assert len(await tasks.queue_models(connection, config, night + timedelta(days=1))) == 3
        only_chat = EvalsConfig(slices=("facts",))
        assert len(await tasks.queue_models(connection, only_chat, night + timedelta(days=2))) == 2
    finally:
        await connection.close()


def test_the_schedule_is_in_utc() -> None:
    when = EvalsConfig(schedule="0 2 * * *").crontab()
    assert when is not None
    before = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
    when.nowfun = lambda: before
    assert when.remaining_estimate(before) == timedelta(hours=1)
