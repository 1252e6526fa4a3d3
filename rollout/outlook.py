"""How far a release is from its next stage: what each number still lacks, and how long that takes at the pace so far.

For people alone: nothing is decided by it, so it may be an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from evals.judge import Policy, Verdict
from evals.judge.evidence import Evidence
from evals.judge.wealth import inverse, wealth

_FIRST = "first requests"
_MOST_COINS = 1 << 20


def outlook(found: Verdict, policy: Policy, elapsed_s: float) -> Iterator[str]:
    """A sentence for each thing that is missing. found: the last verdict. elapsed_s: since its stage began."""
    if found.stage < 0:
        return
    pace = (found.candidate_units + found.control_units) / elapsed_s if elapsed_s > 0 else 0.0
    least = policy.least_units[found.stage]
    for arm, units in (("candidate", found.candidate_units), ("control", found.control_units)):
        if units < least:
            after = _after((least - units) * elapsed_s / units) if units else "none came so far"
            yield f"{arm}: {units:,} of {least:,} sessions, {least - units:,} more; {after}"
    if found.stage < len(policy.least_units) - 1:
        return
    # every session has thrown one coin in the test of first requests
    sessions = max((one.candidate + one.control for one in found.harms if one.test == _FIRST), default=0)
    for one in found.proofs:
        if not one.is_enough:
            yield f"proof of {one.metric}: {_lacking(one, sessions, pace)}"


def needed_log10(one: Evidence) -> float:
    """The decimal logarithm of what the evidence must reach."""
    return -math.log10(one.alpha) if one.alpha else math.inf


def least_coins(one: Evidence) -> int:
    """How many more sessions of the control, and none of the candidate, make a proof of latency enough."""

    def is_enough(more: int) -> bool:
        purse = wealth(((Decimal(-1), one.candidate), (Decimal(1), one.control + more)))
        return purse >= inverse(one.alpha)

    high = 1
    while not is_enough(high) and high < _MOST_COINS:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _lacking(one: Evidence, sessions: int, pace: float) -> str:
    if one.log10_e > 0 and sessions:
        more = math.ceil(sessions * (needed_log10(one) / one.log10_e - 1))
        after = _after(more / pace) if pace else "none come now"
        return f"as it went so far, about {more:,} more sessions of both arms; {after}"
    if one.metric in ("ttft", "itl"):
        return (
            f"nothing speaks for it so far; it takes {least_coins(one):,} more slow sessions of the control if no more "
            "of the candidate's is slow. If it does not grow, hold the release or roll it back"
        )
    return "nothing speaks for it so far; it grows with sessions whose first request is good"


def _after(seconds: float) -> str:
    """At the pace so far."""
    if seconds < 90:
        return f"{seconds:.0f} s at the pace so far"
    minutes = seconds / 60
    return f"{minutes:.0f} min at the pace so far" if minutes < 120 else f"{minutes / 60:.1f} h at the pace so far"
