"""Whether a candidate may take the place of a baseline, slice by slice, judged from answers to the same items.

Pure: who asks, draws more items and stores is not here. What the outcomes prove:

- pass: the candidate is not worse than the baseline by the margin or more, in this slice. A candidate that is so much
  worse passes with a probability of alpha at most. There is no pass for want of evidence: with too few items the bound
  lies below the margin whatever the answers were.
- fail: the candidate is worse. An equal one fails with a probability of fail_alpha at most, all slices and looks
  together; alpha, unless the rule says otherwise.
  That it was not shown to be as good is no failure.
- inconclusive: neither is shown. More items may decide (`SliceVerdict.next_look`), or the budget has ended.

Every slice must pass, each at alpha: passing needs no correction for how many there are (an intersection-union test,
Berger 1982), failing does, and gets fail_alpha divided by them.
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
"""Bounds are rounded to, so that another machine's last bit changes no verdict."""


class Decision(StrEnum):
    """Of a slice, or of all."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class PairedItem(msgspec.Struct, frozen=True, array_like=True):
    """One item as both answered it."""

    slice: str
    cluster: str
    """The template or document it was made from."""
    baseline: float
    """How right the answer was, 0 to 1."""
    candidate: float


class SliceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a slice must show, fixed before its first item is asked.

    Raises ValueError naming the field, its value and what is allowed (msgspec.ValidationError where it is decoded).
    """

    margin: float = 0.02
    """Share of items by which a candidate must not be worse."""
    alpha: float = 0.05
    """Probability of a pass when it is worse by the margin, all looks together."""
    fail_alpha: float | None = None
    """Probability that an equal candidate fails the gate, all slices and looks together; None: alpha."""
    power: float = 0.8
    """Probability that an equal candidate passes, for which `SliceVerdict.items_needed` is planned."""
    first_look: int = 200
    """Items that are looked at first; then at twice as many, and so on."""
    budget: int = 1600
    """Items after which nothing more is drawn."""
    correlation: float = 0.05
    """Intraclass correlation within a cluster that is reckoned with for losses too rare to have shown: with so large a
    part of them, a cluster loses as one. 0: items are independent where nothing says otherwise; 1: a whole cluster may
    be lost unseen, and counts as one item."""

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
        """What is divided over the slices that may fail the gate."""
        return self.alpha if self.fail_alpha is None else self.fail_alpha


class SliceVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the last look at a slice found. Shares of items, 0 to 1; a candidate that is worse has negative ones."""

    slice: str
    decision: Decision
    reason: str
    """A sentence for people."""
    margin: float
    alpha: float
    fail_alpha: float
    power: float
    """As the rule wants them."""
    drawn: int
    """Items that were given."""
    n: int
    """Items that the look counted; 0 before the first look."""
    clusters: int
    difference: float
    """Candidate minus baseline, mean over items."""
    lower: float
    """The difference is above it; at the level that this look may spend of alpha. A pass where it is above -margin."""
    upper: float
    """The difference is below it; at this look's part of fail_alpha divided by the slices. A fail where below 0."""
    flip_share: float
    """Items whose score differs."""
    power_reached: float
    """Probability that an equal candidate, whose items flip as these do, passes with n items at this look's level."""
    items_needed: int
    """Items beyond those drawn with which that would be `power` at the last look; 0 once it is decided. May exceed what
    the budget has left: then the slice will probably end inconclusive."""
    next_look: int | None
    """Items at which it is looked at again; None: it is decided, or the budget has ended."""


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of all slices together."""

    decision: Decision
    """fail: some slice failed; pass: all passed; inconclusive: anything else."""
    reason: str
    slices: tuple[SliceVerdict, ...]

    @property
    def wanted(self) -> dict[str, int]:
        """To how many items each slice should be drawn; empty once more items would not change the decision."""
        if self.decision is not Decision.INCONCLUSIVE:
            return {}
        return {one.slice: one.next_look for one in self.slices if one.next_look is not None}


def judge(items: Mapping[str, Sequence[PairedItem]], rules: Mapping[str, SliceRule]) -> GateVerdict:
    """The verdict of all slices that have a rule. items: by slice, each in the order in which they were drawn.

    A slice without items is inconclusive. The same items give the same verdict, however often they are judged. Raises
    ValueError for items without a rule, and as `judge_slice`.
    """
    if not rules:
        raise ValueError("rules: no slice has one; a gate that asks nothing proves nothing")
    if strangers := sorted(set(items) - set(rules)):
        raise ValueError(f"items: {', '.join(strangers)} has no rule; there are {', '.join(sorted(rules))}")
    verdicts = tuple(
        judge_slice(items.get(name, ()), rule, name=name, slices=len(rules)) for name, rule in sorted(rules.items())
    )
    by_decision = {decision: [one.slice for one in verdicts if one.decision is decision] for decision in Decision}
    for decision, said in ((Decision.FAIL, "worse"), (Decision.INCONCLUSIVE, "not decided")):
        if names := by_decision[decision]:
            reason = f"{len(names)} of {len(verdicts)} slices {said}: {', '.join(names)}"
            return GateVerdict(decision=decision, reason=reason, slices=verdicts)
    return GateVerdict(decision=Decision.PASS, reason=f"all of {len(verdicts)} slices passed", slices=verdicts)


def judge_slice(items: Sequence[PairedItem], rule: SliceRule, *, name: str = "", slices: int = 1) -> SliceVerdict:
    """Look at the items as the rule's looks would have, one after the other; the first decision stands.

    So it may be asked after every item, as often as anybody likes: between two looks it says what the last one said.
    items: in the order in which they were drawn, which must not depend on how they were answered. slices: how many may
    fail the gate. Raises ValueError for a score outside 0 to 1, and for items of more than one slice.
    """
    _require_sound(items, name)
    counts = looks(rule.first_look, rule.budget)
    passing, failing = levels(rule.alpha, counts), levels(rule.failing / slices, counts)
    verdict = _before_the_first(items, rule, name)
    for place, count in enumerate(counts):
        if count > len(items):
            break
        coming = counts[place + 1] if place + 1 < len(counts) else None
        verdict = _look(items, count, rule, passing[place], failing[place], passing[-1], coming, name)
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
    """Above which the true difference is, but for a probability of `level`. -1 with fewer than two clusters.

    The wider of Student's bound, which knows clusters and needs flips, and the exact bound by counts, which needs none
    and knows no clusters; and beside it, at right angles, the loss that no item has shown: as large as the exact bound
    of nothing seen, times the design effect `rare` = 1 + (cluster_items - 1) * correlation.
    """
    if found.freedom <= 0.0:
        return -1.0
    shown = max(student_quantile(level, found.freedom) * found.error, found.mean - lower_by_counts(counted, level))
    unseen = -math.expm1(math.log(level) / found.items)
    return max(-1.0, found.mean - math.sqrt(shown**2 + (rare**2 - 1.0) * unseen**2))


def upper_bound(found: Clustered, counted: Flips, level: float) -> float:
    """Below which the true difference is, but for a probability of `level`. 1 with fewer than two clusters.

    Not below 0 unless the exact test says, too, that there are more losses than chance makes.
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
