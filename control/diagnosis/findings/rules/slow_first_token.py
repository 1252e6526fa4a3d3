"""The engine has begun to answer, but text comes late, because its first output is not text."""

from __future__ import annotations

from control.diagnosis.findings.comparison import dominating, grown, lacking
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.PREFIX_CACHING, "prefill was over when the engine began to answer"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "prefill was over when the engine began to answer"),
    WouldNotHelp(Fix.ADMISSION_CONTROL, "the request was not waiting"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the phase `first_token`."""
    slow = grown(evidence, Measure.FIRST_TOKEN, objectives, Number.TTFT)
    slow = slow or dominating(evidence, Measure.FIRST_TOKEN, objectives)
    if slow is None:
        why = lacking(evidence, Measure.FIRST_TOKEN, "no first tokens were measured")
        return Clear(Cause.SLOW_FIRST_TOKEN) if why is None else NotEnough(Cause.SLOW_FIRST_TOKEN, why)
    return Finding(
        cause=Cause.SLOW_FIRST_TOKEN,
        phase=Phase.FIRST_TOKEN,
        evidence=(slow.told,),
        fixes=(Fix.LESS_BEFORE_TEXT,),
        would_not_help=WOULD_NOT_HELP,
        new=slow.before is not None,
        score=slow.score,
    )
