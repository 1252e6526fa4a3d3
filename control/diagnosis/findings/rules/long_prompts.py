"""Prompts have become longer, and requests slower with them: the engine does more work, not slower work.

The anatomy's tree checks the distribution first in the prefill branch, and its post-mortem is this case: prompts went
from 800 to 2,400 tokens while three engineers quantized.
"""

from __future__ import annotations

import msgspec

from control.diagnosis.findings.comparison import MEDIAN, MIN, Excess, grown, missing
from control.diagnosis.findings.evidence import Evidence, Quantiles, Slice, same
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

RATIO, MORE_TOKENS = 1.5, 512
"""Longer by half, and by at least the length of a system prompt."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "prefill is bound by compute: a team's three months of it gained 8 %"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
    WouldNotHelp(Fix.KV_QUANTIZATION, "it saves memory that decoding reads; prefill hardly reads it"),
    WouldNotHelp(Fix.BIGGER_BATCH, "more long prompts at once share the same compute"),
    WouldNotHelp(Fix.DRAIN_REPLICA, "every replica computes the same longer prompts"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the prompts' lengths in each tier, if the time to first token has suffered."""
    if evidence.before is None:
        return NotEnough(Cause.LONG_PROMPTS, "there is no window before to compare lengths with")
    pairs = [(now, same(evidence.before.tiers, now)) for now in evidence.now.tiers]
    lengths = [(now, _lengths(now), _lengths(before)) for now, before in pairs]
    known = [(now, mine, earlier) for now, mine, earlier in lengths if mine is not None and earlier is not None]
    if not known:
        return NotEnough(Cause.LONG_PROMPTS, f"fewer than {MIN} prompts in one of the windows")
    cost = _harm(evidence, objectives)
    for now, mine, earlier in known:
        statistic = _longer(mine, earlier)
        if statistic is not None and cost is not None:
            return Finding(
                cause=Cause.LONG_PROMPTS,
                phase=Phase.PREFILL,
                evidence=(
                    f"Prompts of the tier {now.label} have become longer: {mine.value(statistic):,.0f} tokens "
                    f"({statistic} of {mine.n:,}), before {earlier.value(statistic):,.0f} (of {earlier.n:,}).",
                    cost.told,
                ),
                fixes=(Fix.CHUNKED_PREFILL, Fix.PROMPT_BUDGET, Fix.PREFIX_CACHING),
                would_not_help=WOULD_NOT_HELP,
                score=cost.score,
            )
    return Clear(Cause.LONG_PROMPTS)


def _lengths(one: Slice | None) -> Quantiles | None:
    values = None if one is None else one.measures.get(Measure.PROMPT_TOKENS)
    return values if values is not None and values.n >= MIN else None


def _longer(now: Quantiles, before: Quantiles) -> str | None:
    tail = (now if now.n <= before.n else before).tail
    for statistic in (MEDIAN, tail):
        if statistic is not None:
            more = now.value(statistic) - before.value(statistic)
            if more >= MORE_TOKENS and now.value(statistic) >= RATIO * before.value(statistic):
                return statistic
    return None


def _harm(evidence: Evidence, objectives: Objectives) -> Excess | None:
    # Compare whole tiers: length classes would hide that more requests are long.
    assert evidence.before is not None
    whole = Evidence(
        now=msgspec.structs.replace(evidence.now, classes=()),
        before=msgspec.structs.replace(evidence.before, classes=()),
    )
    return grown(whole, Measure.TTFT, objectives, Number.TTFT) or missing(
        evidence, Measure.TTFT, objectives, Number.TTFT
    )
