"""Decides to roll back, promote or wait, or that the evidence is inconclusive."""

from __future__ import annotations

import math
from decimal import localcontext
from enum import StrEnum

import msgspec

from control.releases.judge.evidence import METRIC_NAMES, Evidence, harms, most_telling, proofs
from control.releases.judge.policy import Policy
from control.releases.judge.state import Slices, State
from control.releases.judge.wealth import DIGITS

MAX_WRITTEN_OUT = 6
"""Digits of odds that are written out; larger ones are shown as powers of ten."""


class Decision(StrEnum):
    """Decision for the release controller."""

    ROLL_BACK = "roll_back"
    PROMOTE = "promote"
    """To the next stage; from the last one, to all traffic."""
    WAIT = "wait"
    INCONCLUSIVE = "inconclusive"
    """The budget of evidence ended undecided: hold, and let a person decide."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A decision and its evidence."""

    decision: Decision
    stage: int
    candidate_units: int
    """The candidate's sessions in this stage."""
    control_units: int
    decided_by: tuple[str, ...]
    """The deciding metrics, the strongest first."""
    missing: tuple[str, ...]
    """Missing conditions of a promotion, a sentence each."""
    reason: str
    """A plain sentence for the operator."""
    harms: tuple[Evidence, ...]
    proofs: tuple[Evidence, ...]


def verdict(state: State, policy: Policy) -> Verdict:
    """The verdict on the state. Computing it after every batch does not change its error rates.

    A release is rolled back in any stage once one test of harm has reached its share of `alpha`. It leaves a stage once
    that has had its least sessions, and the last stage once every proof has also reached `promotion_alpha`.
    """
    with localcontext(DIGITS):  # the caller's context may round otherwise
        harm, proof = harms(state, policy), proofs(state, policy)
    missing = tuple(_missing(state, policy, proof))
    against = most_telling(harm)
    if against:
        decision, decided_by, reason = Decision.ROLL_BACK, against, _harm_sentence(against[0])
    elif not missing:
        decision, decided_by = Decision.PROMOTE, most_telling(proof) if policy.is_last(state.stage) else []
        reason = f"stage {state.stage} has the evidence it needs, and none is against the candidate"
    elif len(state.units) >= (budget := policy.most_units + state.more_units):
        decision, decided_by = Decision.INCONCLUSIVE, []
        reason = f"the budget of {budget} sessions is spent; still missing: {'; '.join(missing)}"
    else:
        decision, decided_by, reason = Decision.WAIT, [], f"missing: {'; '.join(missing)}"
    return Verdict(
        decision=decision,
        stage=state.stage,
        candidate_units=state.stage_candidate_units,
        control_units=state.stage_control_units,
        decided_by=tuple(dict.fromkeys(one.metric for one in decided_by)),
        missing=missing,
        reason=reason,
        harms=tuple(harm),
        proofs=tuple(proof),
    )


def _missing(state: State, policy: Policy, proof: list[Evidence]) -> list[str]:
    if state.stage < 0:
        return ["the first request"]
    missing = []
    least = policy.least_units[state.stage]
    for arm, units in (("candidate", state.stage_candidate_units), ("control", state.stage_control_units)):
        if units < least:
            missing.append(f"{least - units} sessions of the {arm}")
    if not policy.is_last(state.stage):
        return missing
    for one in proof:
        if not one.is_enough:
            missing.append(f"proof for {METRIC_NAMES[one.metric]}: {one.test} ({_of(one)})")
    if policy.needs_slices and state.slices is not Slices.PASS:
        missing.append(f"a pass of the slices (now: {state.slices})")
    votes = state.worse_votes + state.better_votes
    if votes < policy.least_votes:
        missing.append(f"{policy.least_votes - votes} decisive review votes")
    return missing


def _harm_sentence(one: Evidence) -> str:
    if one.metric == "slices":
        return "the gate failed the candidate's slices"
    other = "customers' own engines" if one.metric == "shadow" else "control"
    counts = f"{one.candidate} candidate to {one.control} {other}"
    return f"worse than tolerated: {METRIC_NAMES[one.metric]}, {one.test}, {counts} ({_of(one)})"


def _of(one: Evidence) -> str:
    """Progress of the evidence. E-values grow by factors; large ones are shown as powers of ten."""
    return f"evidence {_odds(one.log10_e)}, {_odds(-math.log10(one.alpha))} decides"


def _odds(log10: float) -> str:
    return f"{10**log10:,.3g}:1" if log10 < MAX_WRITTEN_OUT else f"10^{log10:.1f}:1"
