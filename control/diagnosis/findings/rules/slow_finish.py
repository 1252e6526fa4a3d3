"""Responses end slowly: the journal's disk and the settlement come before the last bytes."""

from __future__ import annotations

from control.diagnosis.findings.comparison import ENGINE
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_FINISH,
    Phase.STREAM,
    Measure.STREAM,
    (Fix.REPAIR_JOURNAL,),
    (
        WouldNotHelp(Fix.SPECULATIVE_DECODING, "the engine had ended"),
        WouldNotHelp(Fix.MORE_REPLICAS, "the engine had ended"),
    ),
    least=ENGINE,  # the disk's flush is not the gateway's own work, and the text does not wait for it
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `stream`."""
    return RULE.judge(evidence, objectives)
