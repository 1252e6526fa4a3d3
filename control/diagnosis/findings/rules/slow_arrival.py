"""Requests take long to arrive: their bodies come slowly, or the lookup of their keys is slow."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_ARRIVAL,
    Phase.ARRIVAL,
    Measure.AUTH,
    (Fix.REPAIR_KEY_LOOKUP,),
    (
        WouldNotHelp(Fix.MORE_REPLICAS, "the request has not reached an engine yet"),
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the request has not reached an engine yet"),
    ),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `auth`."""
    return RULE.judge(evidence, objectives)
