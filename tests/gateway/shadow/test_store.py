"""Pairs in a real PostgreSQL: numbers for everybody, texts of those who want them stored, and gone with the wish."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from control.shadow.retention import forget
from gateway.shadow.answer import Answer
from gateway.shadow.comparison import Served
from gateway.shadow.pair import Outcome
from tests.gateway.shadow.pairs import SAME, pair, project, store_on, texts


async def reviews(pool: Any) -> list[tuple[Any, ...]]:
    rows = await pool.fetch("SELECT project_id::text, prompt, baseline, candidate FROM gateway.reviews ORDER BY 2")
    return [tuple(row) for row in rows]


async def test_a_pair_is_a_row_of_its_numbers(pool: asyncpg.Pool[Any]) -> None:
    store = store_on(pool)
    other = Served(Answer('{"a":1}', finish_reason="length"), None, None, 0, 2)
    compared = pair(SAME, other, json_asked=True, unit=2**63 - 1)
    failed = pair(outcome=Outcome.FAILED, error_code="engine_failed")
    for one in (compared, failed, compared):  # a batch that is written again
        store.add(one, None)
    await store.flush()
    rows = {row["id"]: dict(row) for row in await pool.fetch("SELECT * FROM gateway.shadow_pairs")}
    assert rows.keys() == {compared.id, failed.id}
    assert compared.comparison is not None
    expected = {**msgspec.structs.asdict(compared), **msgspec.structs.asdict(compared.comparison)}
    del expected["comparison"]
    row = rows[compared.id]
    assert {name: row[name] for name in expected} == expected
    assert (rows[failed.id]["outcome"], rows[failed.id]["error_code"]) == ("failed", "engine_failed")
    assert rows[failed.id]["same_text"] is None


async def test_whatever_a_candidate_wrote_can_be_stored(pool: asyncpg.Pool[Any]) -> None:
    store, whose = store_on(pool), await project(pool)
    store.add(pair(), texts(whose, candidate="nul \0 and half \ud800"))
    await store.flush()
    assert await reviews(pool) == [(whose, "user: hi", "old", "nul  and half ?")]


async def test_texts_are_of_those_who_want_them_and_gone_with_the_wish(pool: asyncpg.Pool[Any]) -> None:
    store = store_on(pool)
    wants, other, never = [await project(pool, wish) for wish in (True, True, False)]
    for whose in (wants, other, never):
        store.add(pair(), texts(whose, prompt=whose))
    await store.flush()
    assert {row[0] for row in await reviews(pool)} == {wants, other}
    assert await pool.fetchval("SELECT count(*) FROM gateway.shadow_pairs") == 3

    await pool.execute("UPDATE gateway.projects SET allow_reviews = false WHERE id = $1", wants)
    assert {row[0] for row in await reviews(pool)} == {other}
    store.add(pair(), texts(wants))
    await store.flush()
    assert {row[0] for row in await reviews(pool)} == {other}

    before = texts(wants)
    await pool.execute("UPDATE gateway.projects SET allow_reviews = true WHERE id = $1", wants)
    store.add(pair(), before)
    await store.flush()
    assert {row[0] for row in await reviews(pool)} == {other}, "what was asked before it was turned on again"


@pytest.mark.parametrize("end", ["withdrawn", "deleted"])
async def test_what_was_voted_stays_when_its_texts_go(pool: asyncpg.Pool[Any], end: str) -> None:
    store, whose = store_on(pool), await project(pool)
    for _ in range(2):
        store.add(pair(), texts(whose))
    await store.flush()
    await pool.execute(
        "INSERT INTO gateway.review_votes SELECT id, 'ada', 'left' FROM gateway.reviews ORDER BY id LIMIT 1"
    )
    if end == "withdrawn":
        await pool.execute("UPDATE gateway.projects SET allow_reviews = false WHERE id = $1", whose)
    else:
        await pool.execute("DELETE FROM gateway.projects WHERE id = $1", whose)
    assert await reviews(pool) == [(None, None, None, None)]
    assert await pool.fetchval("SELECT choice FROM gateway.review_votes") == "left"


async def test_retention_takes_texts_first_and_pairs_and_votes_later(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str
) -> None:
    store, whose = store_on(pool), await project(pool)
    ages = {"new": 1, "unvoted": 20, "voted": 20, "old": 100}
    for name in ages:
        store.add(pair(model=name), texts(whose, prompt=name))
    await store.flush()
    await pool.execute(
        "INSERT INTO gateway.review_votes SELECT id, 'ada', 'both' FROM gateway.reviews WHERE model IN ('voted', 'old')"
    )
    for name, days in ages.items():
        at = datetime.now(UTC) - timedelta(days=days)
        for table in ("shadow_pairs", "reviews"):
            await pool.execute(f"UPDATE gateway.{table} SET recorded_at = $1 WHERE model = $2", at, name)
    assert forget(fresh_postgres_url, pair_retention_days=90, text_retention_days=14) == 4
    assert {row["model"] for row in await pool.fetch("SELECT model FROM gateway.shadow_pairs")} == {
        "new", "unvoted", "voted",
    }  # fmt: skip
    left = await pool.fetch("SELECT model, prompt FROM gateway.reviews ORDER BY model")
    assert [tuple(row) for row in left] == [("new", "new"), ("voted", None)]
    assert forget(fresh_postgres_url, pair_retention_days=90, text_retention_days=14) == 0
