"""Caches are cold because replicas have just started. They fill without intervention.

The course distinguishes this from broken prompts: all shares are low at first and recover within the window.
"""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.cached_shares import harm, together

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.STABLE_PREFIX, "the prompts have not changed: their prefixes are found again"),
    WouldNotHelp(Fix.MORE_REPLICAS, "a new replica is as cold"),
    WouldNotHelp(Fix.MORE_KV_MEMORY, "the memory is available, and empty"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding, and prefill not at all"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the course of all organizations' combined share: a single one has too few requests in a third."""
    found = together(evidence)
    if found is None or found.first is None or found.last is None:
        return NotEnough(Cause.COLD_CACHE, "what was cached cannot be followed through both windows")
    if not found.fills or found.prompts_changed:
        return Clear(Cause.COLD_CACHE)
    cost = harm(evidence, objectives)
    return Finding(
        cause=Cause.COLD_CACHE,
        phase=Phase.PREFILL,
        evidence=(
            found.told,
            *((cost.told,) if cost is not None else ()),
        ),
        fixes=(Fix.WARM_UP,),
        would_not_help=WOULD_NOT_HELP,
        score=0.0 if cost is None else cost.score,
    )
