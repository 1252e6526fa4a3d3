"""Estimates what a release still lacks for its next stage, and how long that takes at this pace.

The estimates are for people only; no decision depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal

from control.releases.judge import Policy, Verdict
from control.releases.judge.evidence import METRIC_NAMES, Evidence
from control.releases.judge.wealth import inverse, wealth

FIRST = "first requests"
"""The judge's test in which every session has tossed one coin."""
_MAX_COINS = 1 << 20


def outlook(found: Verdict, policy: Policy, elapsed_s: float) -> Iterator[str]:
    """A sentence for each missing condition. found: the last verdict. elapsed_s: since its stage began."""
    if found.stage < 0:
        return
    pace = (found.candidate_units + found.control_units) / elapsed_s if elapsed_s > 0 else 0.0
    least = policy.least_units[found.stage]
    for arm, units in (("candidate", found.candidate_units), ("control", found.control_units)):
        if units < least:
            after = _after((least - units) * elapsed_s / units) if units else "none so far"
            yield f"{least - units:,} more sessions of the {arm} ({units:,} of {least:,} in this stage): {after}"
    if not policy.is_last(found.stage):
        return
    sessions = max((one.candidate + one.control for one in found.harms if one.test == FIRST), default=0)
    for one in found.proofs:
        if not one.is_enough:
            margin = policy.goodput_margin if one.metric == "goodput" else policy.error_margin
            lacking = _lacking(one, sessions, pace, margin)
            yield f"proof of {METRIC_NAMES[one.metric]} ({one.test}): {lacking}"
    if policy.needs_slices:
        yield from (each for each in found.missing if each.startswith("a pass of the slices"))
    votes = sum(one.candidate + one.control for one in found.harms if one.metric == "reviews")
    if votes < policy.least_votes:
        # votes of all stages so far: this stage's pace does not predict them
        yield f"{policy.least_votes - votes:,} more decisive votes of reviewers ({votes:,} of {policy.least_votes:,})"


def copies_outlook(lacking: int, least: int, elapsed_s: float) -> str:
    """The sentence about copies in the shadow stage. least: copies that both sides must answer."""
    done = max(least - lacking, 0)
    after = _after(lacking * elapsed_s / done) if done else "none were answered so far"
    return f"{lacking:,} more copies of requests that both sides answer ({done:,} of {least:,}): {after}"


def needed_log10(one: Evidence) -> float:
    """The decimal logarithm that the evidence must reach."""
    return -math.log10(one.alpha) if one.alpha else math.inf


def towards(one: Evidence) -> float:
    """The progress of the evidence, from 0; it decides at 1."""
    return 1.0 if one.is_enough else max(0.0, one.log10_e / needed_log10(one))


def least_coins(one: Evidence) -> int:
    """How many more sessions of the control, and none of the candidate, make a proof of latency sufficient."""

    def purse(more: int) -> Decimal:
        return wealth(((Decimal(-1), one.candidate), (Decimal(1), one.control + more)))

    return _least(one, purse)


def least_good(one: Evidence, sessions: int, margin: float) -> int:
    """How many more sessions of both arms make a proof of a rate sufficient if none of their first requests has the
    fault. sessions: so far. margin: see `Policy`."""
    compensation = Decimal(repr(margin)) / 2
    good = max(sessions - one.candidate - one.control, 0)

    def purse(more: int) -> Decimal:
        return wealth(
            (
                (-1 + compensation, one.candidate),
                (1 + compensation, one.control),
                (compensation, good + more),
            )
        )

    return _least(one, purse)


def _least(one: Evidence, purse: Callable[[int], Decimal]) -> int:
    """The smallest sufficient number, by binary search up to about `_MAX_COINS`."""

    def is_enough(more: int) -> bool:
        return purse(more) >= inverse(one.alpha)

    high = 1
    while not is_enough(high) and high < _MAX_COINS:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _lacking(one: Evidence, sessions: int, pace: float, margin: float) -> str:
    if one.log10_e > 0 and sessions:
        more = math.ceil(sessions * (needed_log10(one) / one.log10_e - 1))
        return f"about {more:,} more sessions of both arms, if it continues at this rate; {_paced(more, pace)}"
    if one.metric not in ("ttft", "itl"):
        more = least_good(one, sessions, margin)
        return (
            f"there is no evidence for it so far; about {more:,} more sessions of both arms, if none of their "
            f"first requests has the fault; {_paced(more, pace)}"
        )
    coins = least_coins(one)
    if one.control and sessions:
        more = math.ceil(coins * sessions / one.control)
        taken = f"at the control's share so far about {more:,} more sessions of both arms; {_paced(more, pace)}"
    else:
        taken = "the control had none so far"
    return (
        f"there is no evidence for it so far; {coins:,} more slow sessions of the control, if no further session "
        f"of the candidate is slow: {taken}. If the evidence does not grow, hold the release or roll it back"
    )


def _paced(sessions: int, pace: float) -> str:
    return _after(sessions / pace) if pace else "none come now"


def _after(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s at this stage's pace so far"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min at this stage's pace so far"
    hours = minutes / 60
    return f"{hours:.1f} h at this stage's pace so far" if hours < 48 else f"{hours / 24:.0f} days at this stage's pace"
