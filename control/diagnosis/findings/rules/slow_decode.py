"""Tokens come slowly and evenly.

The anatomy's tree, branch "inter-token is high": lead with speculative decoding if outputs are long and predictable;
then batching policy, KV quantization if memory is short, a cascade if quality may give.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import grown, lacking, missing
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.PREFIX_CACHING, "it spares prefill; every token still reads the whole KV cache"),
    WouldNotHelp(Fix.FASTER_ATTENTION, "decoding is bound by memory bandwidth, not by compute"),
    WouldNotHelp(Fix.BIGGER_BATCH, "each step then reads more KV, and every token of every request comes later"),
    WouldNotHelp(Fix.PROMPT_BUDGET, "time per token follows the batch far more than one prompt's length"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the mean time per token of each request."""
    slow = grown(evidence, Measure.TPOT, objectives, Number.TPOT)
    slow = slow or missing(evidence, Measure.TPOT, objectives, Number.TPOT)
    if slow is None:
        why = lacking(evidence, Measure.TPOT, "no times per token were measured")
        return Clear(Cause.SLOW_DECODE) if why is None else NotEnough(Cause.SLOW_DECODE, why)
    return Finding(
        cause=Cause.SLOW_DECODE,
        phase=Phase.DECODE,
        evidence=(slow.told,),
        fixes=(Fix.SPECULATIVE_DECODING, Fix.SMALLER_BATCH, Fix.KV_QUANTIZATION, Fix.CASCADE),
        would_not_help=WOULD_NOT_HELP,
        questions=("What is the largest batch, and how full is the KV cache? Memory pressure slows every token.",),
        new=slow.before is not None,
        score=slow.score,
    )
