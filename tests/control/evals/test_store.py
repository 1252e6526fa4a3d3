"""Runs and comparisons as rows: queued once a night, read with their progress, cancelled before and while they run."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import date
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from contracts.errors import Conflict, NotFound
from control.evals import store
from control.slices.bounds import MAX_ITEMS
from evals.slices.split import RESERVED_FROM_SEED
from storage.engine import connect
from storage.tables.evals import Arm, Status


@pytest.fixture
async def connection(module_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await connect(module_postgres_url)
    yield connection
    await connection.close()


async def test_a_night_is_queued_once_for_a_model(connection: asyncpg.Connection[Any]) -> None:
    night = date(2026, 11, 22)
    asked: dict[str, Any] = {"slices": {"facts": 10, "lists": 5}, "night": night, "pool": "p", "version": {"pool": "p"}}
    made = await store.queue_night(connection, model="chat", **asked)
    assert made is not None
    assert await store.queue_night(connection, model="chat", **asked) is None
    assert await store.queue_night(connection, model="other", **asked) is not None
    run = await store.run(connection, made)
    assert (run.items, run.answered, run.status, run.night) == (15, 0, Status.QUEUED, night)
    assert run.first_seed == store.panel_seed(night)


def test_a_nights_items_come_round_and_are_no_days() -> None:
    nights = [date.fromordinal(739_000 + day) for day in range(40)]
    seeds = [store.panel_seed(night) for night in nights]
    assert all(seeds[place] == seeds[place % store.PANEL_PARTS] for place in range(40))
    parts = sorted(set(seeds))
    assert len(parts) == store.PANEL_PARTS
    assert all(later - earlier >= MAX_ITEMS for earlier, later in itertools.pairwise(parts))
    assert not set(parts) & {store.rotating_seed(night) for night in nights}
    assert min(parts) > 100 * RESERVED_FROM_SEED


def test_days_ask_other_items_and_leave_those_kept_for_final_figures() -> None:
    seeds = [store.rotating_seed(date.fromordinal(739_000 + day)) for day in range(1000)]
    assert all(later - earlier == MAX_ITEMS for earlier, later in itertools.pairwise(seeds))
    assert min(seeds) > 100 * RESERVED_FROM_SEED


async def test_a_comparison_is_two_runs_over_the_same_items(connection: asyncpg.Connection[Any]) -> None:
    release_id = uuid4()
    made = await store.queue_comparison(
        connection,
        model="chat",
        baseline_pool="old",
        candidate_pool="new",
        slices=["facts", "lists"],
        budget=400,
        rule=store.Rule(first_look=50),
        release_id=release_id,
    )
    found = await store.comparison(connection, made)
    assert (found.baseline_pool, found.candidate_pool, found.release_id) == ("old", "new", release_id)
    assert (found.status, found.decision, found.rule) == (Status.QUEUED, None, store.Rule(first_look=50))
    runs = [await store.run(connection, run_id) for run_id in (found.baseline_run, found.candidate_run)]
    assert [run.arm for run in runs] == [Arm.BASELINE, Arm.CANDIDATE]
    assert runs[0].first_seed == runs[1].first_seed
    assert [[one.items for one in await store.slices_of(connection, run.id)] for run in runs] == [[50, 50]] * 2
    with pytest.raises(Conflict, match=str(made)):
        await store.cancel_run(connection, runs[0].id)
    assert (await store.cancel_comparison(connection, made)).status is Status.CANCELLED
    assert (await store.run(connection, runs[0].id)).status is Status.CANCELLED
    with pytest.raises(Conflict, match="it is cancelled"):
        await store.cancel_comparison(connection, made)


async def test_what_is_queued_is_cancelled_at_once_and_what_runs_is_asked_to_end(
    connection: asyncpg.Connection[Any],
) -> None:
    first, second = [await store.queue_run(connection, model="chat", slices={"facts": 1}) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (await store.cancel_run(connection, first)).status is Status.CANCELLED
    await connection.execute("UPDATE evals.runs SET status = 'running' WHERE id = $1", second)
    assert (await store.cancel_run(connection, second)).status is Status.RUNNING
    with pytest.raises(NotFound):
        await store.cancel_run(connection, uuid4())
