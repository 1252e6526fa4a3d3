"""Prefill is slow although prompts are no longer than before.

The anatomy's tree, branch "prefill-bound": a long tail of prompts needs chunked prefill, and heavy shared prefixes need
caching. If uniform short prompts are still slow, check kernels and placement.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import dominating, grown, lacking
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

LONG_TOKENS = 4_096
"""The anatomy: "long tail with frequent arrivals above 4k"."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
    WouldNotHelp(
        Fix.WEIGHT_QUANTIZATION, "prefill is bound by compute: weights of fewer bits are read faster, not multiplied"
    ),
    WouldNotHelp(Fix.KV_QUANTIZATION, "it saves memory that decoding reads; prefill hardly reads it"),
    WouldNotHelp(Fix.BIGGER_BATCH, "more prompts at once share the same compute"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the engine's report of its prefill."""
    slow = grown(evidence, Measure.PREFILL, objectives, Number.TTFT)
    slow = slow or dominating(evidence, Measure.PREFILL, objectives)
    if slow is None:
        why = lacking(evidence, Measure.PREFILL, "no engine reports prefill and queue separately")
        return Clear(Cause.SLOW_PREFILL) if why is None else NotEnough(Cause.SLOW_PREFILL, why)
    sentences, fixes = workload(evidence)
    return Finding(
        cause=Cause.SLOW_PREFILL,
        phase=Phase.PREFILL,
        evidence=(slow.told, *sentences),
        fixes=fixes,
        would_not_help=WOULD_NOT_HELP,
        new=slow.before is not None,
        score=slow.score,
    )


def workload(evidence: Evidence) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Sentences about the prompts, and the changes that fit them, the best first."""
    largest = max(evidence.now.tiers, key=lambda each: each.requests, default=None)
    prompts = None if largest is None else largest.measures.get(Measure.PROMPT_TOKENS)
    if largest is None or prompts is None:
        return (), (Fix.CHUNKED_PREFILL, Fix.CHECK_PLACEMENT)
    sentences = [f"Prompts have {prompts.p50:,.0f} tokens (p50), {prompts.p95:,.0f} (p95)."]
    fixes = []
    if prompts.p95 >= LONG_TOKENS:
        fixes.append(Fix.CHUNKED_PREFILL)
    if (share := largest.cached_share) is not None:
        sentences.append(f"Engines had {share:.0%} of their tokens cached.")
    if prompts.p95 < LONG_TOKENS:
        fixes += [Fix.CHECK_PLACEMENT, Fix.FASTER_ATTENTION]
    return tuple(sentences), (*fixes, Fix.PREFIX_CACHING)
