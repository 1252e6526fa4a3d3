"""Valkey or the journal's disk makes the reservation slow. Every request waits for a round trip to each."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_LIMITER,
    Phase.LIMIT,
    Measure.LIMIT,
    (Fix.REPAIR_COUNTERS,),
    (
        WouldNotHelp(Fix.MORE_REPLICAS, "the request has not reached an engine yet"),
        WouldNotHelp(Fix.ADMISSION_CONTROL, "this is admission control, the slow part itself"),
        WouldNotHelp(Fix.RAISE_LIMIT, "nothing was refused: a higher limit is checked as slowly"),
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the request has not reached an engine yet"),
    ),
    ("Valkey or the disk? `slipstream_limits_reserve_seconds` measures Valkey alone.",),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `limit`."""
    return RULE.judge(evidence, objectives)
