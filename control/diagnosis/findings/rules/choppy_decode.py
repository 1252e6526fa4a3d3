"""Tokens come fast but stop now and then, because one request's prefill blocks all decoding.

"Large prefills and smooth decode compete for the same GPU time"; ITL is the gap, TPOT the mean: both are judged.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import groups, grown, lacking, missing
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

STOPS = 6.0
"""The least pause, in typical token times. Shorter ones mean evenly slow decoding, which another rule judges."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "the mean is good; a step that waits for a prefill waits with drafts, too"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the gaps are other requests' prefills, which compute bounds"),
    WouldNotHelp(Fix.BIGGER_BATCH, "more requests in a batch means more prefills among the decodes"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by each request's longest gap: whether it grew or exceeds its objective."""
    gap = grown(evidence, Measure.LONGEST_GAP, objectives, Number.LONGEST_GAP)
    if gap is not None and gap.now.value(gap.statistic) < STOPS * _typical(evidence, gap.label):
        gap = None
    gap = gap or missing(evidence, Measure.LONGEST_GAP, objectives, Number.LONGEST_GAP)
    if gap is None:
        promised = any(objectives.of(each.tier, each.length).itl_max_ms for each in groups(evidence.now))
        why = lacking(evidence, Measure.LONGEST_GAP, "no gaps were measured", growth_alone=not promised)
        return Clear(Cause.CHOPPY_DECODE) if why is None else NotEnough(Cause.CHOPPY_DECODE, why)
    return Finding(
        cause=Cause.CHOPPY_DECODE,
        phase=Phase.DECODE,
        evidence=(gap.told,),
        fixes=(Fix.CHUNKED_PREFILL, Fix.PROMPT_BUDGET),
        would_not_help=WOULD_NOT_HELP,
        new=gap.before is not None,
        score=gap.score,
    )


def _typical(evidence: Evidence, label: str) -> float:
    """The median time per token in that group, in milliseconds."""
    found = (each.measures.get(Measure.TPOT) for each in groups(evidence.now) if each.label == label)
    return next((each.p50 for each in found if each is not None), 0.0)
