"""Caches are cold and filling: replicas have just started. It passes by itself.

Told from prompts that broke by its course: everybody's share is low at first and comes back within the window.
"""

from __future__ import annotations

from diagnosis.evidence import Evidence
from diagnosis.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.objectives import Objectives
from diagnosis.rules.cached_shares import harm, shares

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.STABLE_PREFIX, "the prompts are as they were: their prefixes are found again"),
    WouldNotHelp(Fix.MORE_REPLICAS, "a new replica is as cold"),
    WouldNotHelp(Fix.MORE_KV_MEMORY, "the memory is there, and empty"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the course of every organization's cached share."""
    known = [each for each in shares(evidence) if each.first is not None and each.last is not None]
    if not known:
        return NotEnough(Cause.COLD_CACHE, "no organization's cache can be followed through both windows")
    cold = [each for each in known if each.fell_at_first and each.recovers]
    if len(cold) * 2 <= len(known):
        return Clear(Cause.COLD_CACHE)
    cost = harm(evidence, objectives)
    return Finding(
        cause=Cause.COLD_CACHE,
        phase=Phase.PREFILL,
        evidence=(
            cold[0].told,
            f"So it is with {len(cold)} of {len(known)} organizations.",
            *((cost.told,) if cost is not None else ()),
        ),
        fixes=(Fix.WARM_UP,),
        would_not_help=WOULD_NOT_HELP,
        score=0.0 if cost is None else cost.score,
    )
