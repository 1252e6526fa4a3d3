"""Between the gateway and what the engine measures of itself something takes long."""

from __future__ import annotations

from diagnosis.evidence import Evidence
from diagnosis.finding import Cause, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.measure import Measure
from diagnosis.objectives import Objectives
from diagnosis.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.ENGINE_LINK,
    Phase.ENGINE,
    Measure.ENGINE_LINK,
    (Fix.REPAIR_ENGINE_LINK,),
    (
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the engine's own prefill is as it was"),
        WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the model is not what takes long"),
    ),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the phase `engine`, less what the engine tells."""
    return RULE.judge(evidence, objectives)
