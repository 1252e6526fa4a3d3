"""All cached shares fell and stay low: caches are too small for the traffic, or requests miss their replica.

The program: "prefix caching alone with round-robin routing gives about 20 % of the achievable benefit."
"""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.cached_shares import harm, shares, together

MIN_TENANTS = 2
"""Without a comparison of prompts, a single tenant looks the same as broken prompts."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.STABLE_PREFIX, "the prompts of all organizations did not change at the same moment"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "prefill is bound by compute; the missing part is the cached one"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by all organizations' cached shares."""
    known = shares(evidence)
    compared = bool(known) and all(each.prompts_changed is not None for each in known)
    if not known or (len(known) < MIN_TENANTS and not compared):
        return NotEnough(Cause.LOST_CACHE, "fewer than two organizations have enough requests in both windows")
    combined = together(evidence)
    if combined is None or combined.fills or not all(each.stays_low and not each.prompts_changed for each in known):
        return Clear(Cause.LOST_CACHE)
    cost = harm(evidence, objectives)
    return Finding(
        cause=Cause.LOST_CACHE,
        phase=Phase.PREFILL,
        evidence=(
            known[0].told,
            f"This applies to all {len(known)} organizations.",
            *((cost.told,) if cost is not None else ()),
        ),
        fixes=(Fix.CACHE_AWARE_ROUTING, Fix.MORE_KV_MEMORY),
        would_not_help=WOULD_NOT_HELP,
        score=0.0 if cost is None else cost.score,
    )
