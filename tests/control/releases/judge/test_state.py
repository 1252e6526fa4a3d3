"""Observing is a fold: of the requests and their order within sessions, nothing of how they were batched."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.releases.judge import (  # fmt: skip
    Arm,
    Observation,
    Policy,
    Slices,
    State,
    Thresholds,
    observe,
    observe_slices,
    observe_votes,
    thresholds_of,
    verdict,
)
from tests.examples import examples

POLICY = Policy(cold_requests=3, least_units=(2, 4))
WARM = Policy(cold_requests=0, least_units=(2, 4))
THRESHOLDS = Thresholds(ttft_ms=(10, 20, 30, 40, 50, 60, 70), itl_ms=(1, 2, 3, 4, 5, 6, 7))
LATENCY = st.none() | st.floats(0, 100)
OBSERVATION = st.builds(
    Observation, st.sampled_from(Arm), st.integers(0, 12), LATENCY, LATENCY, st.booleans(), st.none() | st.booleans()
)


def request(
    arm: Arm, unit: int, ttft_ms: float | None = 5.0, *, itl_ms: float | None = None, failed: bool = False,
    good: bool | None = None,
) -> Observation:  # fmt: skip
    return Observation(arm, unit, ttft_ms, itl_ms, failed, good)


@examples(nightly=300)
@given(st.lists(st.tuples(st.booleans(), OBSERVATION), max_size=60), st.integers(0, 60))
def test_batches_do_not_matter(drawn: list[tuple[bool, Observation]], next_stage: int) -> None:
    """Cut anywhere, or one by one, over a change of stage: the same state and the same verdict, bit for bit."""
    requests = [one for _, one in drawn]
    stages = (requests[:next_stage], requests[next_stage:])
    whole = single = cut = State()
    for stage, batch in enumerate(stages):
        whole = observe(whole, POLICY, THRESHOLDS, stage, batch)
        single = observe(single, POLICY, THRESHOLDS, stage, [])
        for one in batch:
            single = observe(single, POLICY, THRESHOLDS, stage, [one])
        cut = observe(cut, POLICY, THRESHOLDS, stage, [])
        piece: list[Observation] = []
        for at, one in enumerate(batch):
            piece.append(one)
            if drawn[at][0]:
                cut, piece = observe(cut, POLICY, THRESHOLDS, stage, piece), []
        cut = observe(cut, POLICY, THRESHOLDS, stage, piece)
    assert whole == single == cut
    told = [msgspec.json.encode(verdict(one, POLICY)) for one in (whole, single, cut)]
    assert told[0] == told[1] == told[2]


@examples(nightly=200)
@given(st.lists(OBSERVATION, max_size=60))
def test_what_was_stored_replays_to_the_same_bytes(requests: list[Observation]) -> None:
    stored = msgspec.json.encode(requests)
    replayed = msgspec.json.decode(stored, type=list[Observation])
    states = [observe(State(), POLICY, THRESHOLDS, 0, batch) for batch in (requests, replayed)]
    assert msgspec.json.encode(verdict(states[0], POLICY)) == msgspec.json.encode(verdict(states[1], POLICY))
    kept = msgspec.json.decode(msgspec.json.encode(states[0]), type=State)
    assert kept == states[0]
    said = verdict(kept, POLICY)
    assert msgspec.json.decode(msgspec.json.encode(said), type=type(said)) == said


@given(st.lists(OBSERVATION, max_size=30))
def test_a_fold_changes_nothing_it_was_given(requests: list[Observation]) -> None:
    before = observe(State(), POLICY, THRESHOLDS, 0, requests)
    kept = msgspec.json.encode(before)
    observe(before, POLICY, THRESHOLDS, 1, requests)
    assert msgspec.json.encode(before) == kept


def test_a_session_throws_each_coin_once_in_the_whole_release() -> None:
    """Its arm stays, so a second coin would be the first again; in a later stage too."""
    slow = [request(Arm.CANDIDATE, 1, 99.0, failed=True, good=False)] * 50
    state = observe(State(), WARM, THRESHOLDS, 0, slow)
    state = observe(state, WARM, THRESHOLDS, 1, slow)
    assert sum(state.ttft.candidate_first) == 1
    assert state.ttft.candidate_beyond == (1, 1, 1)
    assert (state.errors.candidate, state.errors.first_candidate, state.errors.exposed) == (1, 1, 1)
    assert (state.goodput.candidate, state.goodput.exposed) == (1, 1)
    assert state.stage_candidate_units == 1


def test_a_later_request_of_a_session_may_be_its_first_exceedance() -> None:
    state = observe(State(), WARM, THRESHOLDS, 0, [request(Arm.CONTROL, 1), request(Arm.CONTROL, 1, 55.0)])
    assert state.ttft.control_first == (1, 0, 0, 0, 0, 0, 0, 0)
    assert state.ttft.control_beyond == (1, 0, 0)
    assert state.errors.exposed == 2


def test_a_candidate_within_the_tolerance_exceeds_nothing() -> None:
    requests = [request(Arm.CANDIDATE, 1, 65.9), request(Arm.CONTROL, 2, 60.1), request(Arm.CANDIDATE, 3, 66.1)]
    state = observe(State(), WARM, THRESHOLDS, 0, requests)
    assert state.ttft.candidate_beyond == (2, 1, 0)
    assert state.ttft.control_beyond == (1, 1, 0)


def test_the_first_requests_of_every_stage_are_set_aside_on_both_arms() -> None:
    """Together, not per arm: an arm with a cold cache that answers later has no requests of its own to spare."""
    cold = [request(Arm.CANDIDATE, 1, 99.0), request(Arm.CONTROL, 2, 99.0), request(Arm.CANDIDATE, 3, failed=True)]
    state = observe(State(), POLICY, THRESHOLDS, 0, cold)
    assert state.units == {}
    state = observe(state, POLICY, THRESHOLDS, 0, [request(Arm.CONTROL, 4)])
    state = observe(state, POLICY, THRESHOLDS, 1, [request(Arm.CONTROL, 5, failed=True)])
    assert list(state.units) == [4]
    assert state.errors.control == 0


def test_a_session_that_changed_its_arm_is_left_out_and_told() -> None:
    state = observe(State(), WARM, THRESHOLDS, 0, [request(Arm.CONTROL, 1), request(Arm.CANDIDATE, 1, failed=True)])
    assert state.crossed == 1
    assert state.errors.candidate == 0


def test_a_latency_without_thresholds_is_not_judged() -> None:
    thresholds = Thresholds(ttft_ms=THRESHOLDS.ttft_ms)
    state = observe(State(), WARM, thresholds, 0, [request(Arm.CONTROL, 1, itl_ms=100.0)])
    assert {one.metric for one in verdict(state, WARM).harms} == {"ttft", "errors", "goodput", "reviews", "slices"}


def test_a_failed_gate_stays_failed() -> None:
    state = observe_slices(observe_slices(State(), Slices.FAIL), Slices.PASS)
    assert state.slices is Slices.FAIL


def test_votes_add_up() -> None:
    state = observe_votes(observe_votes(State(), worse=1, better=2), worse=3, better=0)
    assert (state.worse_votes, state.better_votes) == (4, 2)


@pytest.mark.parametrize(("stage", "said"), [(2, "must be in"), (-1, "must be in"), (0, "was left")])
def test_a_stage_that_cannot_be_is_refused(stage: int, said: str) -> None:
    state = observe(State(), POLICY, THRESHOLDS, 1, [])
    with pytest.raises(ValueError, match=said):
        observe(state, POLICY, THRESHOLDS, stage, [])


def test_thresholds_are_the_baselines_own_values() -> None:
    found = thresholds_of(POLICY, [float(one) for one in range(2000, 0, -1)], [])
    assert found.ttft_ms == (500, 1000, 1500, 1800, 1900, 1980, 1990)
    assert found.itl_ms == ()


def test_too_small_a_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="1000 are needed"):
        thresholds_of(POLICY, [1.0] * 999, [])


def test_the_quantile_that_is_promoted_by_says_how_many_requests_thresholds_take() -> None:
    """Behind p99.5 there are then five: a test of harm is valid wherever its threshold lies, a proof is not."""
    found = thresholds_of(POLICY, [float(at) for at in range(1, 1_001)], [])
    assert found.ttft_ms == (250.0, 500.0, 750.0, 900.0, 950.0, 990.0, 995.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 0), ("alpha", 0.6), ("tolerance", -0.1), ("error_margin", 0), ("quantiles", [0.9, 0.5]),
        ("tail_quantiles", [0.42]), ("promoted_quantile", 0.5), ("least_units", []), ("least_units", [0]),
        ("weights", {"ttft": 0.9}), ("weights", {"ttft": -0.1}), ("tail_quantiles", []), ("cold_requests", -1),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_hold_its_word_is_refused(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: value}, Policy)


def test_a_session_counts_for_its_stage_once_something_came_of_it() -> None:
    left = [Observation(Arm.CANDIDATE, 1, 1.0, None, False, None, left=True)] * 3
    state = observe(State(), WARM, THRESHOLDS, 0, left)
    assert (state.stage_candidate_units, sum(state.ttft.candidate_first)) == (0, 1)
    state = observe(state, WARM, THRESHOLDS, 0, [request(Arm.CANDIDATE, 1)] * 2)
    assert state.stage_candidate_units == 1
    state = observe(state, WARM, THRESHOLDS, 1, left)
    assert state.stage_candidate_units == 0
    state = observe(state, WARM, THRESHOLDS, 1, [request(Arm.CANDIDATE, 1, None, failed=True)])
    assert state.stage_candidate_units == 1


@pytest.mark.parametrize("impossible_ms", [math.nan, -1.0, -math.inf])
def test_an_impossible_time_is_no_quick_one(impossible_ms: float) -> None:
    state = observe(State(), WARM, THRESHOLDS, 0, [request(Arm.CANDIDATE, 1, impossible_ms, itl_ms=impossible_ms)])
    assert sum(state.ttft.candidate_first) == sum(state.itl.candidate_first) == 0
    assert (state.ttft.candidate_unproven, state.itl.candidate_unproven) == (1, 1)


def test_an_endless_time_exceeds_everything() -> None:
    state = observe(State(), WARM, THRESHOLDS, 0, [request(Arm.CANDIDATE, 1, math.inf)])
    assert state.ttft.candidate_beyond == (1, 1, 1)


def test_thresholds_are_times() -> None:
    found = thresholds_of(Policy(), [math.nan, -1.0, math.inf] * 50 + [1.0] * 1500, [math.inf])
    assert found == Thresholds(ttft_ms=(1.0,) * 7)
    for wrong in ((math.inf,) * 6, (math.nan,) * 6, (-1.0,) * 6, (2.0, 1.0)):
        with pytest.raises(ValueError, match=r"ttft_ms: .* must be finite"):
            Thresholds(ttft_ms=wrong)


@pytest.mark.parametrize("name", ["error_tolerance", "goodput_tolerance"])
def test_a_tolerance_never_lets_a_purse_lose_more_than_it_holds(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: 0.3 must be in \[0, 0.2\]"):
        msgspec.convert({name: 0.3}, Policy)
    policy = msgspec.convert({name: 0.2, "cold_requests": 0}, Policy)
    faults = [request(Arm.CONTROL, unit, failed=True, good=False) for unit in range(50)]
    verdict(observe(State(), policy, THRESHOLDS, 0, faults), policy)
