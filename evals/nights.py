"""Decides slice by slice whether a model became worse, from the answers of its nights.

Pure: it does not run models, store or report. A night runs one part of a panel of items, whose parts rotate
(`control.evals.store.panel_seed`). So each item of tonight was answered on earlier nights, and its scores are compared
with its own earlier ones. The outcomes of a slice:

- fail: the last nights score lower than the same items did before, by exact tests of losses against wins at this
  night's part of alpha (`_upper`). A night of an unchanged model fails with a probability of at most
  `NightRule.false_alarms` over all slices, windows and references: 50 such nights raise an alarm with a probability of
  at most 50 times that, however the nights depend on each other (Bonferroni over nights).
- pass: the items are proved not to be worse by the margin, against every available reference, each time by the window
  that shares the most items with it.
- inconclusive: neither is proved; a reason is given.

There are two references: the nights of the version before, while the change is recent, and earlier nights of the same
version, which reveal changes that no version records. Nights are judged in windows that end tonight, so that a small
loss adds up over nights and a large one shows at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum

import msgspec

from evals.gate import Decision, lower_bound
from evals.statistics.paired import Flips, clustered, flips, more_losses, upper_by_counts
from evals.statistics.sizes import items_needed

_DIGITS = 9
"""Decimals of bounds. Another machine's last bit must not change a verdict."""
_POWER = 0.8

Version = Mapping[str, str]
"""The version of a model that a night asked: `pool`, `engine_model` and more, as text by name."""


class Against(StrEnum):
    """The reference that tonight is compared with."""

    HISTORY = "history"
    """Earlier nights of the same version."""
    VERSION_BEFORE = "version_before"


class NightRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the judgement.

    Raises ValueError, naming the field, its value and the allowed ones (msgspec.ValidationError if it is decoded).
    """

    margin: float = 0.05
    """Share of a slice's items by which it must be proved not to be worse, to pass."""
    alpha: float = 0.05
    """Probability that a slice passes tonight though it is worse by the margin."""
    false_alarms: float = 0.001
    """Probability, over all slices, windows and references, that a night of an unchanged model fails."""
    windows: tuple[int, ...] = (1, 3, 7)
    """Numbers of nights up to tonight that are judged together, rising."""
    history_nights: int = 28
    """Nights before a window whose scores are the reference."""
    version_nights: int = 14
    """Nights for which a changed version is compared with the one before."""
    correlation: float = 0.05
    """See `evals.gate.SliceRule`. Also the part of a changed version's flips that the items of a template share."""

    def __post_init__(self) -> None:
        if not 0.0 < self.margin < 1.0:
            raise ValueError(f"margin: must be above 0 and below 1, got {self.margin}")
        for name, value in (("alpha", self.alpha), ("false_alarms", self.false_alarms)):
            if not 0.0 < value <= 0.5:
                raise ValueError(f"{name}: must be above 0 and at most 0.5, got {value}")
        if not self.windows or self.windows[0] < 1 or list(self.windows) != sorted(set(self.windows)):
            raise ValueError(f"windows: must rise from 1 or more, got {self.windows}")
        if self.history_nights < 1 or self.version_nights < 1:
            raise ValueError("history_nights and version_nights: must be 1 or more")

    def level(self, slices: int) -> float:
        """The share of a night's false alarms that one test of one slice may spend."""
        return self.false_alarms / slices / (len(self.windows) + 1)


class SliceNight(msgspec.Struct, frozen=True, array_like=True):
    """A slice's answers in one night. items: cluster and score (0 to 1) by seed."""

    slice_version: str
    items: Mapping[int, tuple[str, float]]


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """A night that ran to its end."""

    night: date
    version: Version
    slices: Mapping[str, SliceNight]


class NightSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a slice. Differences are shares of items; of a slice that is worse they are negative."""

    slice: str
    decision: Decision
    reason: str
    """A sentence for people."""
    against: Against | None
    """The reference that decided; null if there was none."""
    nights: int
    """Nights up to tonight that were judged together."""
    items: int
    """Items that they and the reference share."""
    clusters: int
    difference: float
    lower: float
    """Lower bound of the difference, at `alpha`."""
    upper: float
    """Upper bound of the difference, at this test's part of `false_alarms`."""
    score: float | None
    """Tonight's share of right answers."""


class NightVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on all slices of a model's night."""

    decision: Decision
    """fail if any slice failed, pass if all passed, else inconclusive."""
    reason: str
    version_since: date
    """The first of the nights up to tonight that ran the same version."""
    changed: tuple[str, ...]
    """Differences from the version before, as long as it is the reference: `pool: one -> two`."""
    slices: tuple[NightSlice, ...]

    @property
    def failed(self) -> tuple[NightSlice, ...]:
        """The slices that failed."""
        return tuple(one for one in self.slices if one.decision is Decision.FAIL)


class _Comparison(msgspec.Struct, frozen=True):
    """A window's items compared with the same items of a reference."""

    against: Against
    nights: int
    tonight_is_lower: bool
    items: int
    clusters: int
    difference: float
    lower: float
    upper: float
    variance: float
    """Variance of an item's difference, including clusters."""
    rare: float
    """The design effect, for losses that no item has shown."""


def judge(nights: Sequence[Night], rule: NightRule) -> NightVerdict:
    """The verdict on the last of a model's nights, the oldest first.

    Equal nights give an equal verdict. Raises ValueError without a night, or if the last one ran no slice.
    """
    if not nights or not nights[-1].slices:
        raise ValueError("nights: the last one has no slice; a night that asks nothing proves nothing")
    spell = _spell(nights)
    tonight, before = nights[-1], nights[: len(nights) - spell]
    changed = differences(before[-1].version, tonight.version) if before and spell <= rule.version_nights else ()
    level = rule.level(len(tonight.slices))
    verdicts = tuple(_judge_slice(name, nights, spell, rule, level) for name in sorted(tonight.slices))
    decision, reason = _together(verdicts)
    return NightVerdict(
        decision=decision, reason=reason, version_since=nights[-spell].night, changed=changed, slices=verdicts
    )


def differences(before: Version, after: Version) -> tuple[str, ...]:
    """The differences between two versions, by name."""
    names = sorted(before.keys() | after.keys())
    return tuple(
        change_of(name, before.get(name, ""), after.get(name, ""))
        for name in names
        if before.get(name, "") != after.get(name, "")
    )


def change_of(name: str, before: str, after: str) -> str:
    """One difference between two versions, in the format of `NightVerdict.changed`."""
    return f"{name}: {before or 'none'} -> {after or 'none'}"


def _spell(nights: Sequence[Night]) -> int:
    """The number of last nights that ran tonight's version."""
    length = 0
    for each in reversed(nights):
        if each.version != nights[-1].version:
            break
        length += 1
    return length


def _together(verdicts: Sequence[NightSlice]) -> tuple[Decision, str]:
    for decision, outcome in ((Decision.FAIL, "worse"), (Decision.INCONCLUSIVE, "not decided")):
        if names := [one.slice for one in verdicts if one.decision is decision]:
            return decision, f"{len(names)} of {len(verdicts)} slices {outcome}: {', '.join(names)}"
    return Decision.PASS, f"all of {len(verdicts)} slices passed"


def _judge_slice(name: str, nights: Sequence[Night], spell: int, rule: NightRule, level: float) -> NightSlice:
    own = nights[-1].slices[name]
    score = math.fsum(score for _, score in own.items.values()) / len(own.items) if own.items else None
    found = [one for one in _comparisons(name, nights, spell, rule, level) if one.items]
    if not found:
        return _undecided(name, None, _why_nothing(name, nights), score)
    failing = [one for one in found if one.upper < 0.0 and one.tonight_is_lower]
    if failing:
        # the version before goes first: only a failure against it lets a promotion be undone
        worst = min(failing, key=lambda one: (one.against is not Against.VERSION_BEFORE, one.upper))
        reason = (
            f"{_points(worst.difference)} over {worst.items} items of {_nights(worst.nights)}, below "
            f"{_points(worst.upper)}, against {_named(worst.against)}"
        )
        return _decided(name, Decision.FAIL, reason, worst, score)
    largest: dict[Against, _Comparison] = {}
    for one in sorted(found, key=lambda one: one.items):  # of equally many items the longest window: windows rise
        largest[one.against] = one
    weakest = min(largest.values(), key=lambda one: one.lower)
    if weakest.lower > -rule.margin:
        reason = f"not worse by {_points(rule.margin)} or more: above {_points(weakest.lower)}"
        return _decided(name, Decision.PASS, reason, weakest, score)
    return _decided(name, Decision.INCONCLUSIVE, _why_undecided(weakest, rule), weakest, score)


def _comparisons(
    name: str, nights: Sequence[Night], spell: int, rule: NightRule, level: float
) -> Iterator[_Comparison]:
    """All tests of a slice in a night. A test whose reference shares no item has no items."""
    for length in sorted({min(window, spell) for window in rule.windows}):
        earlier = nights[: len(nights) - length][-rule.history_nights :]
        reference = [each for each in earlier if each.version == nights[-1].version]
        yield _compared(name, Against.HISTORY, nights[-length:], reference, rule, level)
    before = nights[: len(nights) - spell]
    if before and spell <= rule.version_nights:
        old = before[-min(_spell(before), rule.history_nights) :]
        yield _compared(name, Against.VERSION_BEFORE, nights[-spell:], old, rule, level)


def _compared(
    name: str,
    against: Against,
    window: Sequence[Night],
    reference: Sequence[Night],
    rule: NightRule,
    level: float,
) -> _Comparison:
    version = window[-1].slices[name].slice_version
    expected, seen, tonight = (_means(name, version, each) for each in (reference, window, window[-1:]))
    pairs = [
        (cluster, score - expected[seed][1]) for seed, (cluster, score) in sorted(seen.items()) if seed in expected
    ]
    if not pairs:
        return _Comparison(against, len(window), False, 0, 0, 0.0, -1.0, 1.0, 0.0, 1.0)
    found, counted = clustered(pairs), flips(difference for _, difference in pairs)
    rare = 1.0 + (found.cluster_items - 1.0) * rule.correlation
    variance = max(found.items * found.error**2, counted.share)
    change = math.fsum(score - expected[seed][1] for seed, (_, score) in tonight.items() if seed in expected)
    return _Comparison(
        against,
        len(window),
        change < 0.0,
        found.items,
        found.clusters,
        round(found.mean, _DIGITS),
        round(lower_bound(found, counted, rule.alpha, rare), _DIGITS),
        round(_upper(counted, rare if against is Against.VERSION_BEFORE else 1.0, level), _DIGITS),
        variance,
        rare,
    )


def _upper(counted: Flips, design_effect: float, level: float) -> float:
    """Upper bound of the true difference with an error probability of `level`; below 0 only if there are also more
    losses than chance explains.

    Within one version, clusters do not count: if nothing has changed, an item's scores differ only by the chance of
    each answer. Another version may answer other templates, so its flips count as fewer, by the design effect.
    """
    counted = Flips(counted.losses / design_effect, counted.wins / design_effect, counted.items / design_effect)
    upper = upper_by_counts(counted, level)
    return upper if more_losses(counted) <= level else max(0.0, upper)


def _means(name: str, slice_version: str, nights: Sequence[Night]) -> dict[int, tuple[str, float]]:
    """Cluster and mean score by seed: an item counts once, however many of the nights ran it."""
    scores: dict[int, list[float]] = {}
    clusters: dict[int, str] = {}
    for night in nights:
        found = night.slices.get(name)
        if found is None or found.slice_version != slice_version:
            continue
        for seed, (cluster, score) in found.items.items():
            scores.setdefault(seed, []).append(score)
            clusters[seed] = cluster
    return {seed: (clusters[seed], math.fsum(each) / len(each)) for seed, each in scores.items()}


def _decided(name: str, decision: Decision, reason: str, one: _Comparison, score: float | None) -> NightSlice:
    return NightSlice(
        slice=name,
        decision=decision,
        reason=reason,
        against=one.against,
        nights=one.nights,
        items=one.items,
        clusters=one.clusters,
        difference=one.difference,
        lower=one.lower,
        upper=one.upper,
        score=score,
    )


def _undecided(name: str, against: Against | None, reason: str, score: float | None) -> NightSlice:
    nothing = _Comparison(Against.HISTORY, 0, False, 0, 0, 0.0, -1.0, 1.0, 0.0, 1.0)
    found = _decided(name, Decision.INCONCLUSIVE, reason, nothing, score)
    return msgspec.structs.replace(found, against=against)


def _why_nothing(name: str, nights: Sequence[Night]) -> str:
    own = nights[-1].slices[name]
    if not own.items:
        return "no item was answered"
    versions = [night.slices[name].slice_version for night in nights[:-1] if name in night.slices]
    if versions and own.slice_version not in versions:
        return "no history: the slice's items have changed since the last night"
    return "no history: no earlier night has answered these items"


def _why_undecided(one: _Comparison, rule: NightRule) -> str:
    between = f"between {_points(one.lower)} and {_points(one.upper)} against {_named(one.against)}"
    if one.clusters < 2:
        return "too few templates: all items were made of one, and one alone proves nothing"
    if one.upper < 0.0:
        return f"{between}, but tonight alone is not lower"
    needed = items_needed(one.variance, rule.margin, rule.alpha, _POWER, one.rare)
    if needed > one.items:
        return f"too few items: {one.items} of about {needed} for a margin of {_points(rule.margin)}; {between}"
    return f"{between}, which includes {_points(-rule.margin)}"


def _named(against: Against) -> str:
    return "the version before" if against is Against.VERSION_BEFORE else "its own history"


def _nights(count: int) -> str:
    return "tonight" if count == 1 else f"the last {count} nights"


def _points(share: float) -> str:
    return f"{100.0 * share:+.1f} points" if share < 0 else f"{100.0 * share:.1f} points"
