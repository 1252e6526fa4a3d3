"""One organization's prompts no longer share their beginning, because changing text comes first.

The prefix-stability contract: one dynamic token takes the share from 80 % to 10 %, and waiting does not fix it. If
gateways compare prompts with earlier ones, the rule judges the prompts, whatever engines still cache. Otherwise it
judges the cached share, if other organizations kept theirs.
"""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.cached_shares import harm, shares, together

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_KV_MEMORY, "the cached prompts are not requested again"),
    WouldNotHelp(Fix.CACHE_AWARE_ROUTING, "there is no replica that has this prefix"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
    WouldNotHelp(Fix.WARM_UP, "a cache does not fill with prefixes that come once"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "prefill is bound by compute"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by each organization's cached share, compared with its own earlier one and the others'."""
    known = shares(evidence)
    if not known:
        return NotEnough(Cause.BROKEN_PREFIX, "no organization has enough requests in both windows")
    compared = [each for each in known if each.prompts_changed is not None]
    kept = [each for each in known if not each.fell]
    if compared:
        broken = [each for each in compared if each.prompts_changed and each.fell]
    else:
        # The cached share proves nothing while all caches fill, or if all organizations lost theirs.
        combined = together(evidence)
        filling = combined is not None and combined.fills
        broken = [] if filling or (len(known) > 1 and not kept) else [each for each in known if each.stays_low]
    if not broken:
        return Clear(Cause.BROKEN_PREFIX)
    cost = harm(evidence, objectives)
    others = (f"Of {len(known)} organizations {len(kept)} kept their cached share.",) if len(known) > 1 else ()
    return Finding(
        cause=Cause.BROKEN_PREFIX,
        phase=Phase.PREFILL,
        evidence=(broken[0].told, *others, *((cost.told,) if cost is not None else ())),
        fixes=(Fix.STABLE_PREFIX,),
        would_not_help=WOULD_NOT_HELP,
        questions=("Which block of the prompt is the first that differs? `slipstream usage prefix` names it.",),
        score=0.0 if cost is None else cost.score,
    )
