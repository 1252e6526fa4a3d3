"""The learnt limit against upstreams in closed form, whose knee the test knows."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config import ConcurrencyConfig
from router.core import concurrency_limit
from router.core.concurrency_limit import ConcurrencyLimit, Move

TTFT_S, TOKEN_S, TOKENS = 0.2, 0.02, 100
Stretch = Callable[[int], float]
"""How many times slower everything is with so many in flight."""


def knee(places: int) -> Stretch:
    """Streams beyond `places` take their time from the others."""
    return lambda in_flight: max(1.0, in_flight / places)


def turn(limit: ConcurrencyLimit, stretch: Stretch, demand: int = 10_000, prompt_tokens: int = 500) -> None:
    """As many answers, one after the other, as make one window."""
    for _ in range(max(concurrency_limit.MIN_ANSWERS, min(demand, limit.places))):
        in_flight = min(demand, limit.places)
        slower = stretch(in_flight)
        limit.first_token(TTFT_S * slower, prompt_tokens, in_flight)
        limit.answered(TTFT_S * slower, TOKEN_S * slower * (TOKENS - 1), prompt_tokens, TOKENS, in_flight)


def turns(limit: ConcurrencyLimit, stretch: Stretch, times: int, demand: int = 10_000) -> list[int]:
    """The limit after each."""
    seen = []
    for _ in range(times):
        turn(limit, stretch, demand)
        seen.append(limit.places)
    return seen


@pytest.mark.parametrize("places", [4, 64, 150])
def test_it_stays_between_the_knee_and_about_twice_it(places: int) -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    turn(limit, lambda in_flight: 1.0, demand=1)
    turns(limit, knee(places), 80)
    settled = turns(limit, knee(places), 60)
    assert min(settled) >= 0.85 * places - 1
    assert sum(settled) / len(settled) <= 2.5 * places + 1


def test_an_engine_that_batches_is_filled_although_every_stream_becomes_slower() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    turn(limit, lambda in_flight: 1.0, demand=1)

    def stretch(in_flight: int) -> float:
        return (1 + in_flight / 100) * max(1.0, in_flight / 200)

    settled = turns(limit, stretch, 120)[60:]
    delivered = [places / stretch(places) for places in settled]
    most = 200 / stretch(200)  # where streams are three times slower
    assert sum(delivered) / len(delivered) >= 0.9 * most
    assert min(delivered) >= 0.75 * most
    assert max(settled) <= 2 * 200


def test_two_hundred_at_once_wait_for_no_more_than_first_tokens() -> None:
    limit, in_flight = ConcurrencyLimit(ConcurrencyConfig()), 64
    for _ in range(200):
        limit.first_token(0.05, 500, min(in_flight, 200))
        in_flight = limit.places
    assert limit.places >= 200
    assert limit.move is Move.EARLY


@pytest.mark.parametrize("seed", range(2))
def test_an_upstream_whose_first_tokens_vary_is_not_taken_for_a_full_one(seed: int) -> None:
    limit, source = ConcurrencyLimit(ConcurrencyConfig()), random.Random(seed)
    for _ in range(250):
        limit.first_token(0.4 * source.lognormvariate(0.0, 0.8), 500, min(limit.places, 200))
    assert limit.places >= 200


def test_the_fast_rise_ends_when_first_tokens_come_late() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    for number in range(300):
        limit.first_token(0.05 if number < 40 else 1.0, 500, limit.places)
    assert limit.places <= 64 + 40 + 1


def test_what_is_not_used_does_not_grow() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    assert set(turns(limit, knee(1_000), 50, demand=40)) == {64}


def test_it_recovers_after_a_dip() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    turn(limit, lambda in_flight: 1.0, demand=1)
    turns(limit, knee(200), 80)
    dip = turns(limit, knee(10), 150)
    assert dip[-1] <= 25
    assert turns(limit, knee(200), 40)[-1] >= 0.85 * 200


def test_one_bad_window_is_no_collapse() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    turn(limit, lambda in_flight: 1.0, demand=1)
    before = turns(limit, knee(200), 80)[-1]
    turn(limit, lambda in_flight: 20.0)
    assert min(turns(limit, knee(200), 30)) >= 0.75 * min(before, 200)


@pytest.mark.parametrize("seed", range(2))
def test_long_prompts_and_noise_are_no_overload(seed: int) -> None:
    source = random.Random(seed)
    limit = ConcurrencyLimit(ConcurrencyConfig())
    for _ in range(8_000):
        demand = source.randint(20, 30)
        # one prompt in ten is a hundred times as long, and its first token comes a hundred times later
        prompt_tokens = source.choice([300] * 9 + [30_000])
        ttft_s = prompt_tokens / 20_000 * source.lognormvariate(0.0, 0.5)
        limit.first_token(ttft_s, prompt_tokens, min(demand, limit.places))
        decode_s = TOKEN_S * (TOKENS - 1) * source.lognormvariate(0.0, 0.1)
        limit.answered(ttft_s, decode_s, prompt_tokens, TOKENS, min(demand, limit.places))
        assert limit.places >= 30


@pytest.mark.parametrize("seed", range(2))
def test_an_upstream_that_has_little_to_do_keeps_its_places_whatever_its_times(seed: int) -> None:
    source = random.Random(seed)
    limit = ConcurrencyLimit(ConcurrencyConfig())
    for _ in range(5_000):
        demand, tokens = source.randint(1, 6), source.randint(1, 400)
        limit.first_token(source.lognormvariate(-1.0, 1.0), 500, demand)
        limit.answered(0.3, TOKEN_S * tokens * source.lognormvariate(0.0, 1.0), 500, tokens, demand)
        assert limit.places >= 64


@pytest.mark.parametrize("seed", range(2))
def test_an_upstream_whose_times_vary_is_tried_a_little_and_given_what_is_asked(seed: int) -> None:
    limit, source, given = ConcurrencyLimit(ConcurrencyConfig(initial=30)), random.Random(seed), []
    for _ in range(10_000):
        in_flight, tokens = min(30, limit.places), source.randint(1, 400)
        limit.first_token(source.lognormvariate(-1.0, 1.0), 500, in_flight)
        limit.answered(0.3, TOKEN_S * tokens * source.lognormvariate(0.0, 0.5), 500, tokens, in_flight)
        given.append(in_flight)
    assert limit.stretch > 2, "by its times alone it would look full"
    assert sum(given) / len(given) >= 0.9 * 30
    assert min(given) >= 0.7 * 30


def test_it_stays_below_what_was_refused_and_tries_again_ever_later() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig())
    tried: list[int] = []
    number = 0
    while len(tried) < 5:
        number += 1
        if limit.places > 40:
            tried.append(number)
            while limit.places > 40:
                limit.refused(limit.places)
            assert limit.places == 40
            assert limit.move is Move.REFUSED
        turn(limit, knee(1_000))
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 4 * pauses[0]


def test_a_ceiling_is_where_it_begins_and_ends() -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig(), ceiling=12)
    assert limit.places == 12
    assert set(turns(limit, knee(1_000), 20)) == {12}
    limit.bound(ConcurrencyConfig(), ceiling=8)
    assert (limit.places, limit.move) == (8, Move.SET)


def test_the_marginal_stretch_is_the_slope_of_a_plain_least_squares() -> None:
    limit, source = ConcurrencyLimit(ConcurrencyConfig()), random.Random(3)
    turn(limit, lambda in_flight: 1.0, demand=1)
    points = [(0.0, 0.0)]
    for _ in range(12):
        in_flight, slower = source.randint(20, 90), source.uniform(1.5, 4.0)
        for _ in range(max(concurrency_limit.MIN_ANSWERS, in_flight)):
            limit.answered(TTFT_S * slower, TOKEN_S * (TOKENS - 1) * slower, 500, TOKENS, in_flight)
        points.append((math.log(in_flight), math.log(limit.stretch)))
        weights = [concurrency_limit.KEPT ** (len(points) - 1 - at) for at in range(len(points))]
        total = sum(weights)
        mean_x, mean_y = (sum(w * p[at] for w, p in zip(weights, points, strict=True)) / total for at in (0, 1))
        variance = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True)) / total
        covariance = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / total
        guess = 1 - 1 / limit.stretch
        expected = (covariance + concurrency_limit.UNTRIED * guess) / (variance + concurrency_limit.UNTRIED)
        assert limit.marginal_stretch == pytest.approx(expected)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("first"), st.floats(0, 100), st.integers(0, 100_000), st.integers(1, 3_000)),
        st.tuples(st.just("answer"), st.floats(0, 100), st.integers(0, 5_000), st.integers(1, 3_000)),
        st.tuples(st.just("refused"), st.just(0.0), st.just(0), st.integers(1, 3_000)),
    ),
    max_size=300,
)


@given(EVENTS, st.integers(1, 20), st.integers(20, 60), st.integers(60, 2_000))
def test_whatever_is_told_it_stays_between_its_bounds(
    events: list[tuple[str, float, int, int]], least: int, initial: int, most: int
) -> None:
    limit = ConcurrencyLimit(ConcurrencyConfig(min_limit=least, initial=initial, max_limit=most))
    for kind, seconds, tokens, in_flight in events:
        if kind == "first":
            limit.first_token(seconds, tokens, in_flight)
        elif kind == "answer":
            limit.answered(seconds, seconds, tokens, tokens, in_flight)
        else:
            limit.refused(in_flight)
        assert least <= limit.places <= most
