"""Decides slice by slice whether a candidate may replace a baseline, from answers to the same items.

Pure: it does not run models, draw items or store results. The outcomes prove:

- pass: the candidate is not worse than the baseline by the margin or more, in this slice. A candidate that is so much
  worse passes with a probability of at most alpha. A lack of evidence is no pass: with too few items, the bound is
  below the margin whatever the answers were.
- fail: the candidate is worse. An equal one fails with a probability of at most fail_alpha over all slices and looks;
  it is alpha unless the rule sets it.
  A lack of proof that it is as good is no failure.
- inconclusive: neither is proved. More items may decide (`SliceVerdict.next_look`), or the budget is used up.

Every slice must pass at alpha. Passing needs no correction for the number of slices (an intersection-union test, Berger
1982); failing does, so fail_alpha is divided by that number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from evals.statistics.distributions import student_quantile
from evals.statistics.looks import levels, looks
from evals.statistics.paired import (
    Clustered,
    Flips,
    clustered,
    flips,
    lower_by_counts,
    more_losses,
    upper_by_counts,
)
from evals.statistics.sizes import items_needed, passing_probability

_DIGITS = 9
"""Decimals of bounds, so that another machine's last bit changes no verdict."""


class Decision(StrEnum):
    """The decision on a slice, or on all slices."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class PairedItem(msgspec.Struct, frozen=True, array_like=True):
    """One item with the scores of both answers."""

    slice: str
    cluster: str
    """The template or document that it was made from."""
    baseline: float
    """Score of the answer, 0 to 1."""
    candidate: float


class SliceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The criteria of a slice, fixed before its first item is run.

    Raises ValueError, naming the field, its value and the allowed ones (msgspec.ValidationError if it is decoded).
    """

    margin: float = 0.02
    """Share of items by which a candidate must not be worse."""
    alpha: float = 0.05
    """Probability, over all looks, that a candidate that is worse by the margin passes."""
    fail_alpha: float | None = None
    """Probability, over all slices and looks, that an equal candidate fails the gate; None for alpha."""
    power: float = 0.8
    """Probability that an equal candidate passes, for which `SliceVerdict.items_needed` is planned."""
    first_look: int = 200
    """Items at the first look; each later look has twice as many."""
    budget: int = 1600
    """Items after which no more are drawn."""
    correlation: float = 0.05
    """Assumed intraclass correlation of losses that are too rare to have been observed. With 0, items are independent
    unless the observed ones show otherwise. With 1, a whole cluster may be lost unobserved, and counts as one item."""

    def __post_init__(self) -> None:
        for name, value in (("margin", self.margin), ("power", self.power)):
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name}: must be above 0 and below 1, got {value}")
        for name, value in (("alpha", self.alpha), ("fail_alpha", self.failing)):
            if not 0.0 < value <= 0.5:
                raise ValueError(f"{name}: must be above 0 and at most 0.5, got {value}")
        if not 0.0 <= self.correlation <= 1.0:
            raise ValueError(f"correlation: must be 0 to 1, got {self.correlation}")
        looks(self.first_look, self.budget)

    @property
    def failing(self) -> float:
        """The probability that is divided among the slices that may fail the gate."""
        return self.alpha if self.fail_alpha is None else self.fail_alpha


class SliceVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last look at a slice. Shares are of items, 0 to 1; a worse candidate has negative ones."""

    slice: str
    decision: Decision
    reason: str
    """A sentence for people."""
    margin: float
    alpha: float
    fail_alpha: float
    power: float
    """From the rule, like the three before it."""
    drawn: int
    """Items that were drawn."""
    n: int
    """Items in the look; 0 before the first look."""
    clusters: int
    difference: float
    """Candidate minus baseline, mean over items."""
    lower: float
    """Lower bound of the difference, at this look's part of alpha. The slice passes if it is above -margin."""
    upper: float
    """Upper bound, at this look's part of fail_alpha divided by the slices. The slice fails if it is below 0."""
    flip_share: float
    """Share of items whose scores differ."""
    power_reached: float
    """Probability that an equal candidate, whose items flip as these do, passes with n items at this look's level."""
    items_needed: int
    """Additional items with which that would be `power` at the last look; 0 once it is decided. If they exceed the
    remaining budget, the slice will probably end inconclusive."""
    next_look: int | None
    """Items at the next look; None if the slice is decided or the budget is used up."""


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on all slices together."""

    decision: Decision
    """fail if any slice failed, pass if all passed, else inconclusive."""
    reason: str
    slices: tuple[SliceVerdict, ...]

    @property
    def wanted(self) -> dict[str, int]:
        """The number of items that each slice should have; empty once more items would not change the decision."""
        if self.decision is not Decision.INCONCLUSIVE:
            return {}
        return {one.slice: one.next_look for one in self.slices if one.next_look is not None}


def judge(items: Mapping[str, Sequence[PairedItem]], rules: Mapping[str, SliceRule]) -> GateVerdict:
    """The verdict on all slices that have a rule. items: by slice, each in the order in which they were drawn.

    A slice without items is inconclusive. Equal items always give an equal verdict. Raises ValueError for items without
    a rule, and for those that `judge_slice` refuses.
    """
    if not rules:
        raise ValueError("rules: no slice has one; a gate that asks nothing proves nothing")
    if unknown := sorted(set(items) - set(rules)):
        raise ValueError(f"items: {', '.join(unknown)} has no rule; there are {', '.join(sorted(rules))}")
    verdicts = tuple(
        judge_slice(items.get(name, ()), rule, name=name, slices=len(rules)) for name, rule in sorted(rules.items())
    )
    by_decision = {decision: [one.slice for one in verdicts if one.decision is decision] for decision in Decision}
    for decision, outcome in ((Decision.FAIL, "worse"), (Decision.INCONCLUSIVE, "not decided")):
        if names := by_decision[decision]:
            reason = f"{len(names)} of {len(verdicts)} slices {outcome}: {', '.join(names)}"
            return GateVerdict(decision=decision, reason=reason, slices=verdicts)
    return GateVerdict(decision=Decision.PASS, reason=f"all of {len(verdicts)} slices passed", slices=verdicts)


def judge_slice(items: Sequence[PairedItem], rule: SliceRule, *, name: str = "", slices: int = 1) -> SliceVerdict:
    """Repeat the rule's looks at the items, one after the other; the first decision stands.

    So it may be called after every item: between two looks, it returns the result of the last one. items: in the order
    in which they were drawn, which must not depend on the answers. slices: how many may fail the gate. Raises
    ValueError for a score outside 0 to 1, and for items of more than one slice.
    """
    _require_sound(items, name)
    counts = looks(rule.first_look, rule.budget)
    passing, failing = levels(rule.alpha, counts), levels(rule.failing / slices, counts)
    verdict = _before_the_first(items, rule, name)
    for index, count in enumerate(counts):
        if count > len(items):
            break
        following = counts[index + 1] if index + 1 < len(counts) else None
        verdict = _look(items, count, rule, passing[index], failing[index], passing[-1], following, name)
        if verdict.decision is not Decision.INCONCLUSIVE:
            break
    return verdict


def _look(
    items: Sequence[PairedItem],
    count: int,
    rule: SliceRule,
    passing: float,
    failing: float,
    last: float,
    next_look: int | None,
    name: str,
) -> SliceVerdict:
    differences = [(item.cluster, item.candidate - item.baseline) for item in items[:count]]
    found = clustered(differences)
    counted = flips(difference for _, difference in differences)
    rare = 1.0 + (found.cluster_items - 1.0) * rule.correlation
    lower = round(lower_bound(found, counted, passing, rare), _DIGITS)
    upper = round(upper_bound(found, counted, failing), _DIGITS)
    variance = max(count * found.error**2, counted.share)
    reached = passing_probability(count, variance, passing, rare, rule.margin)
    needed = max(0, items_needed(variance, rule.margin, last, rule.power, rare) - len(items))
    if lower > -rule.margin:
        decision, next_look, needed = Decision.PASS, None, 0
        reason = f"not worse by {_points(rule.margin)} or more: above {_points(lower)}"
    elif upper < 0.0:
        decision, next_look, needed = Decision.FAIL, None, 0
        reason = f"worse: below {_points(upper)}, {_points(found.mean)} over {count} items"
    else:
        decision = Decision.INCONCLUSIVE
        reason = f"between {_points(lower)} and {_points(upper)} after {count} items; " + (
            f"looked at again after {next_look}" if next_look else f"the budget has ended, {needed} more were needed"
        )
    return SliceVerdict(
        slice=name or items[0].slice,
        decision=decision,
        reason=reason,
        margin=rule.margin,
        alpha=rule.alpha,
        fail_alpha=rule.failing,
        power=rule.power,
        drawn=len(items),
        n=count,
        clusters=found.clusters,
        difference=round(found.mean, _DIGITS),
        lower=lower,
        upper=upper,
        flip_share=round(sum(1 for _, difference in differences if difference) / count, _DIGITS),
        power_reached=round(reached, _DIGITS),
        items_needed=needed,
        next_look=next_look,
    )


def lower_bound(found: Clustered, counted: Flips, level: float, rare: float) -> float:
    """Lower bound of the true difference with an error probability of `level`; -1 with fewer than two clusters.

    It is the wider of Student's bound, which accounts for clusters but needs flips, and the exact bound by counts,
    which needs no flips but ignores clusters. The loss that no item has shown is added in quadrature: the exact bound
    without losses, times the design effect `rare` = 1 + (cluster_items - 1) * correlation.
    """
    if found.freedom <= 0.0:
        return -1.0
    shown = max(student_quantile(level, found.freedom) * found.error, found.mean - lower_by_counts(counted, level))
    unseen = -math.expm1(math.log(level) / found.items)
    return max(-1.0, found.mean - math.sqrt(shown**2 + (rare**2 - 1.0) * unseen**2))


def upper_bound(found: Clustered, counted: Flips, level: float) -> float:
    """Upper bound of the true difference with an error probability of `level`; 1 with fewer than two clusters.

    It is below 0 only if the exact test also finds more losses than chance explains.
    """
    if found.freedom <= 0.0:
        return 1.0
    shown = max(student_quantile(level, found.freedom) * found.error, upper_by_counts(counted, level) - found.mean)
    upper = min(1.0, found.mean + shown)
    return upper if more_losses(counted) <= level else max(0.0, upper)


def _before_the_first(items: Sequence[PairedItem], rule: SliceRule, name: str) -> SliceVerdict:
    first = looks(rule.first_look, rule.budget)[0]
    return SliceVerdict(
        slice=name or (items[0].slice if items else ""),
        decision=Decision.INCONCLUSIVE,
        reason=f"{len(items)} items; looked at first after {first}",
        margin=rule.margin,
        alpha=rule.alpha,
        fail_alpha=rule.failing,
        power=rule.power,
        drawn=len(items),
        n=0,
        clusters=0,
        difference=0.0,
        lower=-1.0,
        upper=1.0,
        flip_share=0.0,
        power_reached=0.0,
        items_needed=max(0, first - len(items)),
        next_look=first,
    )


def _require_sound(items: Sequence[PairedItem], name: str) -> None:
    expected = name or (items[0].slice if items else "")
    for item in items:
        if item.slice != expected:
            raise ValueError(f"items: one of slice {item.slice!r} among those of {expected!r}")
        if not (0.0 <= item.baseline <= 1.0 and 0.0 <= item.candidate <= 1.0):
            raise ValueError(f"items: scores of {expected!r} must be 0 to 1, got {item.baseline} and {item.candidate}")


def _points(share: float) -> str:
    return f"{100.0 * share:+.2f} points" if share < 0 else f"{100.0 * share:.2f} points"
