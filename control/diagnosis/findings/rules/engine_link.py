"""Requests lose time between the gateway and the work that the engine itself measures."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.ENGINE_LINK,
    Phase.ENGINE,
    Measure.ENGINE_LINK,
    (Fix.REPAIR_ENGINE_LINK,),
    (
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the engine's own prefill is as it was"),
        WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the model is not the slow part"),
    ),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `engine`, less the engine's own report."""
    return RULE.judge(evidence, objectives)
