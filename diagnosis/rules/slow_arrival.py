"""Requests arrive slowly: their bodies, or the look-up of their keys."""

from __future__ import annotations

from diagnosis.evidence import Evidence
from diagnosis.finding import Cause, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.measure import Measure
from diagnosis.objectives import Objectives
from diagnosis.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_ARRIVAL,
    Phase.ARRIVAL,
    Measure.AUTH,
    (Fix.REPAIR_KEY_LOOKUP,),
    (
        WouldNotHelp(Fix.MORE_REPLICAS, "no engine has heard of the request yet"),
        WouldNotHelp(Fix.CHUNKED_PREFILL, "no engine has heard of the request yet"),
    ),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the phase `auth`."""
    return RULE.judge(evidence, objectives)
