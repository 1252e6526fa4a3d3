"""One organization's prompts have stopped sharing their beginning: something that changes stands in front.

The prefix-stability contract: one dynamic token takes the share from 80 % to 10 %, and waiting does not mend it. By the
prompts themselves where gateways compare them with earlier ones, whatever engines have still cached; else by what was
cached, where others' caches are as good as ever.
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
    """By each organization's cached share, compared with its own earlier one and the others'."""
    known = shares(evidence)
    if not known:
        return NotEnough(Cause.BROKEN_PREFIX, "no organization has enough requests in both windows")
    compared = [each for each in known if each.prompts_changed is not None]
    whole = [each for each in known if not each.fell]
    if compared:
        broken = [each for each in compared if each.prompts_changed and each.fell]
    else:
        # by the cached share alone: not while all caches fill, nor if all organizations lost theirs
        everybody = together(evidence)
        filling = everybody is not None and everybody.fills
        broken = [] if filling or (len(known) > 1 and not whole) else [each for each in known if each.stays_low]
    if not broken:
        return Clear(Cause.BROKEN_PREFIX)
    cost = harm(evidence, objectives)
    others = (f"Of {len(known)} organizations {len(whole)} kept their cached share.",) if len(known) > 1 else ()
    return Finding(
        cause=Cause.BROKEN_PREFIX,
        phase=Phase.PREFILL,
        evidence=(broken[0].told, *others, *((cost.told,) if cost is not None else ())),
        fixes=(Fix.STABLE_PREFIX,),
        would_not_help=WOULD_NOT_HELP,
        questions=("Which block of the prompt is the first that differs? `slipstream usage prefix` names it.",),
        score=0.0 if cost is None else cost.score,
    )
