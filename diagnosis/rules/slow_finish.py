"""The answer's end is slow: the journal's disk and the settlement stand before the last bytes."""

from __future__ import annotations

from diagnosis.comparison import ENGINE
from diagnosis.evidence import Evidence
from diagnosis.finding import Cause, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.measure import Measure
from diagnosis.objectives import Objectives
from diagnosis.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.SLOW_FINISH,
    Phase.STREAM,
    Measure.STREAM,
    (Fix.REPAIR_JOURNAL,),
    (
        WouldNotHelp(Fix.SPECULATIVE_DECODING, "the engine had ended"),
        WouldNotHelp(Fix.MORE_REPLICAS, "the engine had ended"),
    ),
    least=ENGINE,  # a disk's flush: its time is not ours, and nobody waits for it before the text
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the phase `stream`."""
    return RULE.judge(evidence, objectives)
