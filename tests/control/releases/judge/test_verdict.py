"""Each decision, what it is made of, and what is said."""

from __future__ import annotations

import msgspec
import pytest

from control.releases.judge import (
    Arm,
    Decision,
    Observation,
    Policy,
    Slices,
    State,
    Thresholds,
    observe,
    observe_slices,
    observe_votes,
    verdict,
)
from evals import gate

THRESHOLDS = Thresholds(ttft_ms=(10, 20, 30, 40, 50, 60, 70))
POLICY = Policy(cold_requests=0, least_units=(10, 20))


def both(
    count: int, stage: int, *, first_unit: int = 0, candidate_ms: float = 5.0, failed: int = 0
) -> list[Observation]:
    """So many sessions on each arm, the first `failed` of the candidate's with an error."""
    requests = []
    for at in range(count):
        requests.append(Observation(Arm.CANDIDATE, first_unit + 2 * at, candidate_ms, None, at < failed, None))
        requests.append(Observation(Arm.CONTROL, first_unit + 2 * at + 1, 5.0, None, False, None))
    return requests


def test_nothing_seen_yet_is_a_wait() -> None:
    assert verdict(State(), POLICY).decision is Decision.WAIT


def test_a_stage_goes_on_by_sessions_of_both_arms() -> None:
    state = observe(State(), POLICY, THRESHOLDS, 0, both(9, 0))
    told = verdict(state, POLICY)
    assert told.decision is Decision.WAIT
    assert told.missing == ("1 sessions of the candidate", "1 sessions of the control")
    state = observe(state, POLICY, THRESHOLDS, 0, both(1, 0, first_unit=100))
    assert verdict(state, POLICY).decision is Decision.PROMOTE


def test_errors_roll_back_in_any_stage() -> None:
    told = verdict(observe(State(), POLICY, THRESHOLDS, 0, both(10, 0, failed=10)), POLICY)
    assert told.decision is Decision.ROLL_BACK
    assert told.decided_by == ("errors",)
    assert "10 candidate to 0 control" in told.reason


def test_latency_rolls_back() -> None:
    told = verdict(observe(State(), POLICY, THRESHOLDS, 0, both(30, 0, candidate_ms=80.0)), POLICY)
    assert told.decision is Decision.ROLL_BACK
    assert told.decided_by == ("ttft",)


def test_all_traffic_needs_proof_and_not_only_the_lack_of_harm() -> None:
    state = observe(State(), POLICY, THRESHOLDS, 1, both(3000, 1))
    told = verdict(state, POLICY)
    assert told.decision is Decision.WAIT
    assert [one.is_enough for one in told.proofs] == [False, True]
    assert any("p99 not worse by 10 %" in one for one in told.missing)
    slow = [Observation(Arm.CONTROL, 10_001 + 2 * at, 65.0, None, False, None) for at in range(12)]
    assert verdict(observe(state, POLICY, THRESHOLDS, 1, slow), POLICY).decision is Decision.PROMOTE


@pytest.mark.parametrize("failed", [False, True])
def test_who_answers_nothing_is_not_shown_to_be_quick(failed: bool) -> None:
    """A candidate without any latency beside a control with slow requests: no exceedance is not a proof."""
    thresholds = msgspec.structs.replace(THRESHOLDS, itl_ms=(1, 2, 3, 4, 5, 6, 7))
    silent = [Observation(Arm.CANDIDATE, 2 * at, None, None, failed, None) for at in range(400)]
    slow = [Observation(Arm.CONTROL, 2 * at + 1, 65.0, 7.0, False, None) for at in range(400)]
    told = verdict(observe(State(), POLICY, thresholds, 1, [*silent, *slow]), POLICY)
    assert told.decision is not Decision.PROMOTE
    assert not any(one.is_enough for one in told.proofs)
    assert [(one.candidate, one.control) for one in told.proofs][:2] == [(400, 400), (400, 400)]


def test_a_failed_gate_rolls_back_and_a_needed_one_is_waited_for() -> None:
    policy = msgspec.structs.replace(POLICY, needs_slices=True, least_units=(10,), least_votes=2)
    slow = [Observation(Arm.CONTROL, 10_001 + 2 * at, 65.0, None, False, None) for at in range(12)]
    state = observe(State(), policy, THRESHOLDS, 0, [*both(3000, 0), *slow])
    told = verdict(state, policy)
    assert told.missing == ("a pass of the slices (now: none)", "2 decisive review votes")
    passed = observe_votes(observe_slices(state, Slices.PASS), worse=1, better=1)
    assert verdict(passed, policy).decision is Decision.PROMOTE
    told = verdict(observe_slices(state, Slices.FAIL), policy)
    assert (told.decision, told.decided_by) == (Decision.ROLL_BACK, ("slices",))


def test_every_decision_of_the_gate_can_be_told() -> None:
    assert {Slices(one) for one in gate.Decision} == {*Slices} - {Slices.NONE}


def test_votes_roll_back() -> None:
    told = verdict(observe_votes(State(), worse=20, better=1), POLICY)
    assert (told.decision, told.decided_by) == (Decision.ROLL_BACK, ("reviews",))
    assert verdict(observe_votes(State(), worse=11, better=10), POLICY).decision is Decision.WAIT


def test_a_spent_budget_is_told_as_undecided() -> None:
    policy = msgspec.structs.replace(POLICY, most_units=200)
    told = verdict(observe(State(), policy, THRESHOLDS, 1, both(100, 1)), policy)
    assert told.decision is Decision.INCONCLUSIVE
    assert "200 sessions" in told.reason
    assert told.missing


@pytest.mark.parametrize("weight", [0.0, 0.35])
def test_what_has_no_weight_cannot_stop_a_release(weight: float) -> None:
    weights = msgspec.structs.replace(POLICY.weights, errors=weight)
    policy = msgspec.structs.replace(POLICY, weights=weights)
    told = verdict(observe(State(), policy, THRESHOLDS, 0, both(10, 0, failed=10)), policy)
    assert (told.decision is Decision.ROLL_BACK) is (weight > 0)
