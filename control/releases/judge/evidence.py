"""The tests: the outcomes that each bets on, and the odds at which the bet is fair.

A test of harm bets that the candidate is worse than tolerated, a proof that it is not worse by the margin. Every test
tosses at most one coin for a session, and is compared with its own share of alpha. A mean over tests would be an
e-process only if no test learned a session's arm before another bets on it (Choe & Ramdas 2024), but here they all do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from decimal import Decimal
from types import MappingProxyType

import msgspec

from control.releases.judge.policy import Policy
from control.releases.judge.state import LatencyCounts, RateCounts, Slices, State
from control.releases.judge.wealth import inverse, log10, wealth

FIRST_SHARE = 0.5
"""Part of a latency's alpha for the first requests of sessions; the tail quantiles share the rest equally."""
METRIC_NAMES = MappingProxyType(
    {
        "ttft": "time to first token",
        "itl": "gaps between tokens",
        "errors": "failures",
        "goodput": "missed objectives",
        "reviews": "reviewers' votes",
        "shadow": "copies that failed",
        "slices": "eval slices",
    }
)
"""The metrics' names in sentences and in the console."""
_ONE = Decimal(1)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence of one test."""

    metric: str
    """A field of Weights."""
    test: str
    """The counted outcome, in words."""
    candidate: int
    """Sessions (votes, verdicts) that count against the candidate. `control` has those against the control or, for
    copies, against the customers' own engines."""
    control: int
    alpha: float
    is_enough: bool
    """Whether the e-value has reached 1/alpha, decided in decimals and not by the rounded `log10_e`."""
    log10_e: float
    """Decimal logarithm of the e-value; 0 or less without evidence."""


def harms(state: State, policy: Policy) -> list[Evidence]:
    """The evidence for each possible cause of a rollback, sufficient or not."""
    found: list[Evidence] = []
    for metric, counts in (("ttft", state.ttft), ("itl", state.itl)):
        found += _latency_harms(metric, counts, policy)
    for metric, rate, tolerance in (
        ("errors", state.errors, policy.error_tolerance),
        ("goodput", state.goodput, policy.goodput_tolerance),
    ):
        found.append(_rate_harm(metric, rate, tolerance, policy.alpha_of(metric)))
    votes = ((_ONE, state.worse_votes), (-_ONE, state.better_votes))
    alpha = policy.alpha_of("reviews")
    found.append(_evidence("reviews", "votes", state.worse_votes, state.better_votes, alpha, wealth(votes)))
    if state.copies.exposed:
        found.append(_copies_harm(state, policy))
    failed = state.slices is Slices.FAIL
    alpha = policy.alpha_of("slices")
    # with probability at most alpha_of("slices"), the gate fails a candidate that is no worse
    value = inverse(alpha) if failed and alpha else _ONE
    found.append(_evidence("slices", "gate", int(failed), 0, alpha, value))
    return found


def proofs(state: State, policy: Policy) -> list[Evidence]:
    """The evidence for each proof that all traffic needs. All must be sufficient, so they do not share an alpha."""
    found = []
    alpha = policy.promotion_alpha
    for metric, counts in (("ttft", state.ttft), ("itl", state.itl)):
        if counts.candidate_beyond:
            candidate, control = counts.candidate_unproven, counts.control_unproven
            value = wealth(((-_ONE, candidate), (_ONE, control)))
            test = f"p{100 * policy.promoted_quantile:g} not worse by {100 * policy.tolerance:g} %"
            found.append(_evidence(metric, test, candidate, control, alpha, value))
    for metric, rate, margin in (
        ("errors", state.errors, policy.error_margin),
        ("goodput", state.goodput, policy.goodput_margin),
    ):
        if rate.first_units or metric == "errors":
            found.append(_rate_proof(metric, rate, margin, alpha))
    return found


def _latency_harms(metric: str, counts: LatencyCounts, policy: Policy) -> Iterator[Evidence]:
    if not counts.candidate_first:
        return
    alpha = policy.alpha_of(metric)
    edges = (0.0, *policy.quantiles, 1.0)
    # a session's rank among the baseline's, from -1 to 1: Wilcoxon's score, in steps
    gains = [Decimal(repr(low)) + Decimal(repr(high)) - 1 for low, high in itertools.pairwise(edges)]
    outcomes = [*zip(gains, counts.candidate_first, strict=True)]
    outcomes += [(-gain, count) for gain, count in zip(gains, counts.control_first, strict=True)]
    yield _evidence(
        metric,
        "first requests",
        sum(counts.candidate_first),
        sum(counts.control_first),
        alpha * FIRST_SHARE,
        wealth(outcomes),
    )
    share = alpha * (1 - FIRST_SHARE) / len(policy.tail_quantiles)
    for at, quantile in enumerate(policy.tail_quantiles):
        candidate, control = counts.candidate_beyond[at], counts.control_beyond[at]
        value = wealth(((_ONE, candidate), (-_ONE, control)))
        yield _evidence(metric, f"sessions beyond p{100 * quantile:g}", candidate, control, share, value)


def _rate_harm(metric: str, counts: RateCounts, tolerance: float, alpha: float) -> Evidence:
    """A bet that is fair if a candidate's request has the fault exactly `tolerance` more often than a control's."""
    compensation = Decimal(repr(tolerance)) / 2
    outcomes = (
        (_ONE - compensation, counts.candidate),
        (-_ONE - compensation, counts.control),
        (-compensation, counts.exposed - counts.candidate - counts.control),
    )
    return _evidence(metric, "sessions with a fault", counts.candidate, counts.control, alpha, wealth(outcomes))


def _copies_harm(state: State, policy: Policy) -> Evidence:
    """A bet that is fair if at most `copy_tolerance` more of the copies fail at the candidate alone than at the
    customer's own engine alone. Both get the same request, so a failure of both counts against neither."""
    counts, tolerance = state.copies, Decimal(repr(policy.copy_tolerance))
    outcomes = (
        (_ONE - tolerance, counts.candidate),
        (-_ONE - tolerance, counts.baseline),
        (-tolerance, counts.exposed - counts.candidate - counts.baseline),
    )
    test = "sessions with a copy at which one side alone failed"
    alpha = policy.alpha_of("shadow")
    return _evidence("shadow", test, counts.candidate, counts.baseline, alpha, wealth(outcomes))


def _rate_proof(metric: str, counts: RateCounts, margin: float, alpha: float) -> Evidence:
    """A bet on first requests only: a worse candidate's sessions leave `exposed` earlier, which would make the control
    look worse."""
    compensation = Decimal(repr(margin)) / 2
    candidate, control = counts.first_candidate, counts.first_control
    outcomes = (
        (-_ONE + compensation, candidate),
        (_ONE + compensation, control),
        (compensation, counts.first_units - candidate - control),
    )
    test = f"first requests not worse by {100 * margin:g} points"
    return _evidence(metric, test, candidate, control, alpha, wealth(outcomes))


def _evidence(metric: str, test: str, candidate: int, control: int, alpha: float, value: Decimal) -> Evidence:
    return Evidence(
        metric=metric,
        test=test,
        candidate=candidate,
        control=control,
        alpha=alpha,
        is_enough=alpha > 0 and value >= inverse(alpha),
        log10_e=float(log10(value)),
    )


def most_telling(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Sufficient evidence, the strongest relative to its alpha first."""
    return sorted((one for one in evidence if one.is_enough), key=lambda one: -one.log10_e)
