"""Copies of requests: whoever fails as often as the customers' own engines do is seldom stopped."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.releases.judge import Copy, Decision, Policy, State, Weights, observe_copies, verdict
from tests.control.releases.judge.test_error_rates import RELEASES, most

ALPHA = 0.2
WEIGHTS = Weights(ttft=0.0, itl=0.0, errors=0.0, goodput=0.0, slices=0.0, reviews=0.0, shadow=1.0)
POLICY = Policy(alpha=ALPHA, copy_tolerance=0.0, weights=WEIGHTS)
FAILS = 0.08
Draw = Callable[[random.Random], Copy | None]


def stopped(seed: int, draw: Callable[[random.Random, int], list[Copy]], policy: Policy = POLICY) -> bool:
    """Whether a release is ever rolled back in a hundred looks. draw: a session's copies."""
    rng, state = random.Random(seed), State()
    for look in range(100):
        for number in range(4):
            state = observe_copies(state, draw(rng, 4 * look + number))
        if verdict(state, policy).decision is Decision.ROLL_BACK:
            return True
    return False


def session(rng: random.Random, unit: int, *, worse: float = 0.0, hard: float = 0.5) -> list[Copy]:
    """Copies of a session, of which some are hard for every model. Who gives way to a customer has no outcome, and
    fails not at once."""
    found = []
    fails = FAILS / hard if rng.random() < hard else 0.0
    for _ in range(rng.randint(1, 5)):
        baseline, candidate = rng.random() < fails, rng.random() < fails or rng.random() < worse
        if rng.random() < 0.3 and not candidate:
            if baseline:
                found.append(Copy(unit, -1, False))
            continue
        found.append(Copy(unit, candidate - baseline, not (candidate or baseline)))
    return found


def test_an_unchanged_model_with_failures_of_its_own_is_seldom_stopped() -> None:
    assert sum(stopped(seed, session) for seed in range(RELEASES)) <= most(ALPHA)


@pytest.mark.nightly
def test_what_gives_way_has_to_be_counted_where_the_customers_engine_failed() -> None:
    """The same releases without it, so that the test above is known to be one that can fail."""

    def without(rng: random.Random, unit: int) -> list[Copy]:
        found = []
        for _ in range(5):
            baseline, candidate = rng.random() < 0.3, rng.random() < 0.3
            if rng.random() < 0.5 or candidate:
                found.append(Copy(unit, candidate - baseline, not (candidate or baseline)))
        return found

    assert sum(stopped(seed, without) for seed in range(RELEASES)) > most(ALPHA)


@pytest.mark.nightly
def test_one_that_fails_just_so_much_more_as_is_tolerated_is_seldom_stopped() -> None:
    policy = msgspec.structs.replace(POLICY, copy_tolerance=0.02)

    def tolerated(rng: random.Random, unit: int) -> list[Copy]:
        return [Copy(unit, +(rng.random() < 0.02), True) for _ in range(3)]

    assert sum(stopped(seed, tolerated, policy) for seed in range(RELEASES)) <= most(ALPHA)
    assert sum(stopped(seed, tolerated) for seed in range(RELEASES)) > RELEASES / 2


@pytest.mark.parametrize("worse", [0.1, 0.5, 1.0])
def test_one_that_fails_more_is_stopped_by_its_part_of_the_alpha(worse: float) -> None:
    usual = Policy()
    assert all(stopped(seed, lambda rng, unit: session(rng, unit, worse=worse), usual) for seed in range(20))


@given(st.lists(st.builds(Copy, st.integers(0, 20), st.sampled_from([-1, 0, 1]), st.booleans()), max_size=60))
def test_batches_do_not_matter_and_a_session_throws_one_coin(copies: list[Copy]) -> None:
    at_once = observe_copies(State(), copies)
    one_by_one = State()
    for copy in copies:
        one_by_one = observe_copies(one_by_one, [copy])
    assert one_by_one == at_once
    counts = at_once.copies
    assert counts.candidate + counts.baseline == len(at_once.copied_units) == len({c.unit for c in copies if c.worse})
    assert counts.candidate + counts.baseline <= counts.exposed <= len(copies)
    assert counts.compared == sum(copy.compared for copy in copies)


@given(st.integers(0, 5_000))
def test_requests_at_which_both_fail_speak_against_nobody(count: int) -> None:
    state = observe_copies(State(), [Copy(unit, 0, False) for unit in range(count)])
    assert verdict(state, POLICY).decision is Decision.WAIT
    harms = [one for one in verdict(state, POLICY).harms if one.metric == "shadow"]
    assert all(one.log10_e <= 0 for one in harms)


@pytest.mark.parametrize("tolerance", [-0.01, 0.11])
def test_a_tolerance_with_which_the_test_would_not_be_valid_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match=r"copy_tolerance: .* must be in \[0, 0\.1\]"):
        Policy(copy_tolerance=tolerance)
