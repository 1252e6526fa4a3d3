"""Limits refuse requests. A client that retries until it succeeds sees that as latency; no engine is involved.

An organization's fair share of a full pool is such a limit: the router sheds the excess. If the excess is one
organization's, it is the cause even when it is a small part of all requests. Otherwise all organizations wait.
"""

from __future__ import annotations

from contracts.fair_share import FAIR_SHARE
from control.diagnosis.findings.concentration import refused_beyond_shares
from control.diagnosis.findings.evidence import Evidence, Window
from control.diagnosis.findings.finding import Cause, Clear, Finding, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives

SHARE, FEWEST = 0.05, 5
MONEY = ("insufficient_quota", "request_exceeds_limit")
"""Refusals that waiting does not resolve."""
FLOOD = 0.2
"""The part of all requests that, refused beyond shares, is the cause in any case."""
ONES = 0.01
"""The same for one organization's refusals; equal to the threshold of a queue."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_REPLICAS, "the requests never reached an engine"),
    WouldNotHelp(Fix.ADMISSION_CONTROL, "this is admission control working as intended"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "the requests never reached an engine"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "the requests never reached an engine"),
)
WOULD_NOT_HELP_SHARE = (
    WouldNotHelp(
        Fix.RAISE_LIMIT, "no limit of the tenant refused these requests: it sends more than its part of the pool"
    ),
    *WOULD_NOT_HELP[2:],
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the share of requests that limits refused, and name the main rules and organizations."""
    now = evidence.now
    refusals, flood = now.refusals, floods(now)
    if not flood:  # the queue's rule counts the others
        refusals = tuple(each for each in refusals if each.rule != FAIR_SHARE)
    count = sum(refusal.count for refusal in refusals)
    if count < FEWEST or count < (ONES if flood else SHARE) * now.requests:
        return Clear(Cause.LIMITS)
    by_count = sorted(refusals, key=lambda each: each.count, reverse=True)
    rules = "; ".join(f"{each.rule} ({each.code}) refused {each.count:,}" for each in by_count[:3])
    owners = "; ".join(f"{each.label}: {each.count:,}" for each in now.refused[:3])
    waits, share = by_count[0].code not in MONEY, by_count[0].rule == FAIR_SHARE
    most = refused_beyond_shares(now)
    named = [most.told("were refused beyond a fair share")] if flood and most and most.is_concentrated else []
    fixes = (Fix.PACE_REQUESTS, Fix.RAISE_LIMIT) if waits else (Fix.RAISE_LIMIT,)
    return Finding(
        cause=Cause.LIMITS,
        phase=Phase.LIMIT,
        evidence=(
            f"Limits refused {count:,} of {now.requests:,} requests: {rules}.",
            *([f"Refused most: {owners}."] if owners else []),
            *named,
        ),
        fixes=(Fix.PACE_REQUESTS, Fix.ADMISSION_CONTROL, Fix.MORE_REPLICAS) if share else fixes,
        would_not_help=WOULD_NOT_HELP_SHARE if share else WOULD_NOT_HELP,
    )


def floods(window: Window) -> bool:
    """Whether refusals beyond shares are one organization's flood, and not a wait of all in a full pool.

    In a single organization's diagnosis they always are: the router separates its own excess.
    """
    most = refused_beyond_shares(window)
    if most is None or most.total < FEWEST:
        return False
    return most.total >= (ONES if most.is_concentrated or most.alone else FLOOD) * window.requests
