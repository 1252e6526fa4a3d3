"""The mean difference between two answers to the same items, and its uncertainty.

There are two uncertainties. Items that flipped show the spread (`Clustered`); items that did not flip only bound the
losses that were never observed (`evals.gate.lower_bound`). It is pure arithmetic; the gate (`evals.gate`) decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from evals.statistics.distributions import beta_cdf, binomial_lower, binomial_upper


@dataclasses.dataclass(frozen=True)
class Clustered:
    """A mean of differences whose items come in clusters that fail together."""

    mean: float
    error: float
    """Standard error by clusters; 0 if all differences are equal, which does not mean certainty."""
    freedom: float
    """Degrees of freedom of the error in Student's distribution; 0 with fewer than two clusters."""
    items: int
    clusters: int
    cluster_items: float
    """Size of an item's cluster, on average over items: the sum of squares over the sum."""


def clustered(differences: Iterable[tuple[str, float]]) -> Clustered:
    """The mean of (cluster, difference) pairs, at least one.

    The error corrects each cluster's residual for its own pull on the mean, and its degrees of freedom are those of
    Satterthwaite's approximation: clusters - 1 if all are equally large, fewer if a few have most of the items. Of two
    extremes, independent items and clusters that answer as one, the one with fewer degrees of freedom is used.
    Source: Bell and McCaffrey 2002 (CR2); Imbens and Kolesar 2016, for a mean alone; Miller 2024, arXiv 2411.00640.
    """
    sums: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for cluster, difference in differences:
        sums[cluster] = sums.get(cluster, 0.0) + difference
        sizes[cluster] = sizes.get(cluster, 0) + 1
    items = sum(sizes.values())
    if not items:
        raise ValueError("no items: ask some before they are compared")
    mean = math.fsum(sums.values()) / items
    size = math.fsum(count * count for count in sizes.values()) / items
    if len(sizes) < 2:
        return Clustered(mean, 0.0, 0.0, items, len(sizes), size)
    variance = math.fsum((sums[one] - count * mean) ** 2 / (1.0 - count / items) for one, count in sizes.items())
    freedom = min(_freedom(list(sizes.values()), correlated) for correlated in (False, True))
    return Clustered(mean, math.sqrt(variance) / items, freedom, items, len(sizes), size)


def _freedom(sizes: Sequence[int], correlated: bool) -> float:
    """Squared trace over squared norm of the matrix whose quadratic form is the variance."""
    items = sum(sizes)
    # variance of each cluster's sum, and its covariance with the sum of all
    own = [float(size * size if correlated else size) for size in sizes]
    total = math.fsum(own)
    shares = [size / items for size in sizes]
    pull = [1.0 / (1.0 - share) for share in shares]
    rows = list(zip(pull, own, shares, strict=True))
    # entry g, h is sqrt(pull_g pull_h) (d_gh v_g - s_h v_g - s_g v_h + s_g s_h V); squared and added up by its parts
    ss = math.fsum(weight * share * share for weight, _, share in rows)
    sv = math.fsum(weight * share * variance for weight, variance, share in rows)
    vv = math.fsum(weight * variance * variance for weight, variance, _ in rows)
    norm = total * total * ss * ss + 2.0 * ss * vv - 4.0 * total * ss * sv + 2.0 * sv * sv
    diagonal = [(weight, variance, share * share * total - 2.0 * share * variance) for weight, variance, share in rows]
    norm += math.fsum(
        weight * weight * ((mixed + variance) ** 2 - mixed * mixed) for weight, variance, mixed in diagonal
    )
    trace = math.fsum(weight * (mixed + variance) for weight, variance, mixed in diagonal)
    return trace * trace / norm


@dataclasses.dataclass(frozen=True)
class Flips:
    """The total losses and wins of items; if items are only right or wrong, these are counts."""

    losses: float
    wins: float
    items: float
    """A whole number, unless clusters count as fewer."""

    @property
    def share(self) -> float:
        """Share of the items that changed, either way."""
        return (self.losses + self.wins) / self.items


def flips(differences: Iterable[float]) -> Flips:
    """Add up differences in [-1, 1]. One of -0.5 counts as half a loss: a coin that loses all or nothing as often
    varies more, so bounds for counts are on the safe side."""
    values = list(differences)
    losses = math.fsum(-value for value in values if value < 0)
    return Flips(losses, math.fsum(value for value in values if value > 0), len(values))


def lower_by_counts(counted: Flips, tail: float) -> float:
    """The lower bound of wins minus losses, as shares, for independent items, however few of them flipped.

    It combines the exact limits of both shares; with only losses or no flips, it is the exact binomial bound.
    Source: Zou and Donner 2008 (MOVER) of Clopper and Pearson's limits.
    """
    items = counted.items
    lost, won = counted.losses / items, counted.wins / items
    below = won - binomial_lower(counted.wins, items, tail)
    above = binomial_upper(counted.losses, items, tail) - lost
    return won - lost - math.hypot(below, above)


def upper_by_counts(counted: Flips, tail: float) -> float:
    """The upper bound of wins minus losses; see `lower_by_counts`."""
    return -lower_by_counts(Flips(counted.wins, counted.losses, counted.items), tail)


def more_losses(counted: Flips) -> float:
    """The probability of at least so many losses among the flips if a loss were no likelier than a win.

    Exact, whatever the share that flips; 1 if nothing flipped. Source: McNemar 1947, the exact, one-sided test.
    """
    if counted.losses <= 0:
        return 1.0
    return beta_cdf(0.5, counted.losses, counted.wins + 1.0)
