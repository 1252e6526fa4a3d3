"""Limits refuse requests. Whoever asks again until it passes feels that as latency; no engine has a part in it.

An organization's fair share of a full pool is such a limit: the router sheds what it asks for beyond.
"""

from __future__ import annotations

from diagnosis.evidence import FAIR_SHARE, Evidence, Window
from diagnosis.finding import Cause, Clear, Finding, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.objectives import Objectives

SHARE, FEWEST = 0.05, 5
MONEY = ("insufficient_quota", "request_exceeds_limit")
"""Waiting does not help against these."""
FLOOD = 0.2
"""Part of all requests that must have been refused beyond somebody's share, for that to be what is wrong."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_REPLICAS, "the requests never reached an engine"),
    WouldNotHelp(Fix.ADMISSION_CONTROL, "this is admission control, at work"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "the requests never reached an engine"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "the requests never reached an engine"),
)
WOULD_NOT_HELP_SHARE = (
    WouldNotHelp(Fix.RAISE_LIMIT, "it was no limit of the tenant's: what it sends is more than its part of the pool"),
    *WOULD_NOT_HELP[2:],
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the share of requests that limits refused, by which rule most, and whose."""
    now = evidence.now
    refusals = now.refusals
    if not floods(now):  # the rule of the queue counts them
        refusals = tuple(each for each in refusals if each.rule != FAIR_SHARE)
    count = sum(refusal.count for refusal in refusals)
    if count < FEWEST or count < SHARE * now.requests:
        return Clear(Cause.LIMITS)
    by_count = sorted(refusals, key=lambda each: each.count, reverse=True)
    rules = "; ".join(f"{each.rule} ({each.code}) refused {each.count:,}" for each in by_count[:3])
    whose = "; ".join(f"{each.label}: {each.count:,}" for each in now.refused[:3])
    waits, share = by_count[0].code not in MONEY, by_count[0].rule == FAIR_SHARE
    fixes = (Fix.PACE_REQUESTS, Fix.RAISE_LIMIT) if waits else (Fix.RAISE_LIMIT,)
    return Finding(
        cause=Cause.LIMITS,
        phase=Phase.LIMIT,
        evidence=(
            f"Limits refused {count:,} of {now.requests:,} requests: {rules}.",
            *([f"Refused most: {whose}."] if whose else []),
        ),
        fixes=(Fix.PACE_REQUESTS, Fix.ADMISSION_CONTROL, Fix.MORE_REPLICAS) if share else fixes,
        would_not_help=WOULD_NOT_HELP_SHARE if share else WOULD_NOT_HELP,
    )


def floods(window: Window) -> bool:
    """What was refused beyond shares is one organization's flood; less is everybody's wait in a full pool."""
    return window.over_share > 0 and window.over_share >= FLOOD * window.requests
