"""Sums of pairs and their intervals, beside plain ones."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Sequence
from statistics import fmean
from typing import Any

import asyncpg
import pytest

from control.shadow.sums import sums
from evals.statistics.interval import Estimate, Sums, mean, part, share, wilson
from gateway.shadow.answer import Answer
from gateway.shadow.comparison import Served
from gateway.shadow.pair import Outcome
from storage.engine import lazy_pool
from tests.gateway.shadow.pairs import SAME, pair, store_on


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    pool = await lazy_pool(fresh_postgres_url, size=3, connect_timeout_s=5)
    yield pool
    pool.terminate()


def sums_of(sessions: Sequence[Sequence[float]]) -> Sums:
    """Plainly, of each session's pairs."""
    every = [(len(values), sum(values)) for values in sessions]
    return Sums(
        len(every),
        sum(n for n, _ in every),
        sum(x for _, x in every),
        sum(x * x for _, x in every),
        sum(x * n for n, x in every),
        sum(n * n for n, _ in every),
    )


def test_sessions_of_one_pair_each_have_wilsons_own_interval() -> None:
    found = share(sums_of([[1.0]] * 30 + [[0.0]] * 70))
    assert found.value == 0.3
    expected = wilson(0.3, 100)
    assert (found.lower, found.upper) == pytest.approx(expected, abs=2e-3)


def test_pairs_that_repeat_a_session_say_nothing_new() -> None:
    once = share(sums_of([[1.0]] * 30 + [[0.0]] * 70))
    often = share(sums_of([[1.0] * 20] * 30 + [[0.0] * 20] * 70))
    assert (often.lower, often.upper) == pytest.approx((once.lower, once.upper), abs=1e-9)
    assert (often.pairs, often.units) == (2_000, 100)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_or_none_of_few_sessions_is_no_certainty(value: float) -> None:
    found = share(sums_of([[value] * 100] * 5))
    assert found.lower is not None
    assert found.upper is not None
    assert found.upper - found.lower == pytest.approx(wilson(1.0, 5)[1] - wilson(1.0, 5)[0])
    assert share(Sums(0, 0, 0, 0, 0, 0)) == Estimate(None, None, None, 0, 0)


def test_the_interval_holds_what_it_says() -> None:
    """95 % of samples with sessions that are alike within; a plain interval of pairs would hold far less."""
    dice, held, plain_held = random.Random(7), 0, 0
    for _ in range(400):
        sessions = []
        for _ in range(60):
            rate = dice.choice((0.1, 0.9))
            sessions.append([float(dice.random() < rate) for _ in range(dice.randint(1, 20))])
        found = share(sums_of(sessions))
        assert found.lower is not None
        assert found.upper is not None
        assert found.value is not None
        held += found.lower <= 0.5 <= found.upper
        lower, upper = wilson(found.value, found.pairs)
        plain_held += lower <= 0.5 <= upper
    assert held >= 366, "three deviations below 380"
    assert plain_held < 320


def test_a_mean_of_ratios_is_geometric() -> None:
    found = mean(sums_of([[math.log(2.0)], [math.log(8.0)]]), logarithms=True)
    assert found.value == pytest.approx(4.0)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower * found.upper == pytest.approx(16.0)
    assert mean(sums_of([[1.0, 2.0]])) == Estimate(1.5, None, None, 2, 1)


async def test_the_database_adds_up_as_a_plain_walk_does(pool: asyncpg.Pool[Any]) -> None:
    dice, store = random.Random(3), store_on(pool)
    pairs = []
    for number in range(200):
        text = "yes" if dice.random() < 0.6 else "no, never"
        ttft_ms = dice.choice((None, dice.uniform(5, 20)))
        other = Served(Answer(text, finish_reason="stop"), ttft_ms, dice.uniform(30, 60), dice.choice((0, 3)), 5)
        outcome = dice.choice((Outcome.COMPARED,) * 8 + (Outcome.FAILED, Outcome.LATE))
        fields: dict[str, Any] = {
            "unit": dice.randint(1, 30),
            "outcome": outcome,
            "model": dice.choice("ab"),
            "greedy": number % 2 == 0,
        }
        pairs.append(pair(SAME, other, **fields))
        store.add(pairs[-1], None)
    store.add(pair(release="another"), None)
    await store.flush()
    async with pool.acquire() as connection:
        found = {each.model: each for each in await sums(connection, release="r1")}
        assert found.keys() == {"a", "b"}
        for model, each in found.items():
            of_model = [one for one in pairs if one.model == model]
            compared = [one.comparison for one in of_model if one.comparison is not None]
            by_unit: dict[int, list[float]] = {}
            for one in of_model:
                if one.comparison is not None:
                    by_unit.setdefault(one.unit, []).append(float(one.comparison.same_text))
            assert each.same_text == pytest.approx(share(sums_of(list(by_unit.values()))))
            assert (each.pairs, each.failed.pairs) == (len(of_model), len(of_model))
            assert each.failed.value == pytest.approx(fmean(one.outcome is Outcome.FAILED for one in of_model))
            greedy = [one for one in of_model if one.greedy and one.comparison is not None]
            assert each.same_text_greedy.pairs == len(greedy)
            told = [one for one in compared if one.candidate_ttft_ms is not None and one.candidate_cached_tokens == 3]
            ratios = [math.log(one.candidate_ttft_ms / 10.0) for one in told if one.candidate_ttft_ms is not None]
            assert each.ttft.value == pytest.approx(math.exp(fmean(ratios)))
            assert each.candidate_json_valid == Estimate(None, None, None, 0, 0)
        assert [each.release for each in await sums(connection, model="m")] == ["another"]
        assert len(await sums(connection)) == 3


async def test_each_stage_of_a_release_is_added_up_by_itself(pool: asyncpg.Pool[Any]) -> None:
    store = store_on(pool)
    for stage, count in ((0.0, 3), (0.01, 2), (0.25, 4)):
        for unit in range(count):
            store.add(pair(unit=unit + 1, stage_share=stage), None)
    await store.flush()
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO gateway.shadow_pairs (id, model, release, baseline_pool, candidate_pool, unit, prompt_tokens,"
            " greedy, outcome) VALUES ('old', 'm', 'r1', 'p', 'c', 9, 1, true, 'late')"
        )
        found = {each.stage_share: each.pairs for each in await sums(connection, release="r1")}
    assert found == {0.0: 3, 0.01: 2, 0.25: 4, None: 1}, "of older versions it is not known"


def test_the_interval_of_a_mean_of_parts_ends_at_0_and_1() -> None:
    """Two sessions of one pair each, 1.0 and 0.8: the mean's own interval goes beyond 1."""
    sums = Sums(units=2, n=2, x=1.8, xx=1.64, xn=1.8, nn=2)
    beyond = mean(sums).upper
    assert beyond is not None
    assert beyond > 1
    found = part(sums)
    assert (found.value, found.upper) == (0.9, 1.0)
    assert found.lower == mean(sums).lower
