"""Calls to the router are slow, without the time that the router reports as queueing."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_ROUTER,
    Phase.ROUTE,
    Measure.ROUTE,
    (Fix.REPAIR_ROUTER,),
    (
        WouldNotHelp(Fix.MORE_REPLICAS, "the router does not queue these requests: it answers late"),
        WouldNotHelp(Fix.ADMISSION_CONTROL, "the requests were admitted; the router is slow to respond"),
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the request has not reached an engine yet"),
        WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the request has not reached an engine yet"),
    ),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `route`."""
    return RULE.judge(evidence, objectives)
