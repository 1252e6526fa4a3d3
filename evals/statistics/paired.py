"""The mean difference between two answers to the same items, and how sure it is.

Two uncertainties, each with its own source: items that flipped tell of the spread (`Clustered`), items that did not
only bound what was never seen (`rare_loss`). Pure arithmetic; the gate (`evals.gate`) decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from evals.statistics.distributions import beta_cdf, binomial_lower, binomial_upper


@dataclasses.dataclass(frozen=True)
class Clustered:
    """A mean of differences whose items come in clusters that go wrong together."""

    mean: float
    error: float
    """Standard error by clusters; 0 where all differences are equal, which is no certainty."""
    freedom: float
    """Degrees of freedom of Student's distribution that the error has; 0 with fewer than two clusters."""
    items: int
    clusters: int
    cluster_items: float
    """Items of the cluster that an item is in, on average over items: sum of squares by sum."""


def clustered(differences: Iterable[tuple[str, float]]) -> Clustered:
    """Of (cluster, difference) pairs, at least one.

    The error corrects each cluster's residual for its own pull on the mean, and its degrees of freedom are those of
    Satterthwaite's approximation: clusters - 1 where all are as large, fewer where a few are most of the items. Of the
    two extremes, items that are independent and clusters that answer as one, the one with less freedom counts.
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
    """Trace squared by squared norm of the matrix of which the variance is a quadratic form."""
    items = sum(sizes)
    # variance of each cluster's sum, and its covariance with the sum of all
    own = [float(size * size if correlated else size) for size in sizes]
    total = math.fsum(own)
    shares = [size / items for size in sizes]
    pull = [1.0 / (1.0 - share) for share in shares]
    rows = list(zip(pull, own, shares, strict=True))
    # entry g, h is sqrt(pull_g pull_h) (d_gh v_g - s_h v_g - s_g v_h + s_g s_h V); squared and added up by its parts
    ss = math.fsum(one * share * share for one, _, share in rows)
    sv = math.fsum(one * share * variance for one, variance, share in rows)
    vv = math.fsum(one * variance * variance for one, variance, _ in rows)
    norm = total * total * ss * ss + 2.0 * ss * vv - 4.0 * total * ss * sv + 2.0 * sv * sv
    diagonal = [(one, variance, share * share * total - 2.0 * share * variance) for one, variance, share in rows]
    norm += math.fsum(one * one * ((mixed + variance) ** 2 - mixed * mixed) for one, variance, mixed in diagonal)
    trace = math.fsum(one * (mixed + variance) for one, variance, mixed in diagonal)
    return trace * trace / norm


@dataclasses.dataclass(frozen=True)
class Flips:
    """What items lost and won, added up; of verdicts that are right or wrong, counts."""

    losses: float
    wins: float
    items: float
    """A whole number, unless clusters count as fewer."""

    @property
    def share(self) -> float:
        """Of the items, how much changed, either way."""
        return (self.losses + self.wins) / self.items


def flips(differences: Iterable[float]) -> Flips:
    """Differences are in [-1, 1]. One of -0.5 counts as half a loss: a coin that loses all or nothing as often varies
    more, so bounds made for counts are on the safe side."""
    values = list(differences)
    losses = math.fsum(-value for value in values if value < 0)
    return Flips(losses, math.fsum(value for value in values if value > 0), len(values))


def lower_by_counts(counted: Flips, tail: float) -> float:
    """The lower bound of wins minus losses, as shares, for independent items however few of them flipped.

    Exact limits of both shares, joined: where only losses or nothing at all was seen it is the exact binomial bound.
    Source: Zou and Donner 2008 (MOVER) of Clopper and Pearson's limits.
    """
    items = counted.items
    lost, won = counted.losses / items, counted.wins / items
    below = won - binomial_lower(counted.wins, items, tail)
    above = binomial_upper(counted.losses, items, tail) - lost
    return won - lost - math.hypot(below, above)


def upper_by_counts(counted: Flips, tail: float) -> float:
    """The upper bound: see `lower_by_counts`."""
    return -lower_by_counts(Flips(counted.wins, counted.losses, counted.items), tail)


def more_losses(counted: Flips) -> float:
    """The probability of at least so many losses among the flips if a loss were no likelier than a win.

    Exact, whatever the share that flips; 1 where nothing flipped. Source: McNemar 1947, the exact, one-sided test.
    """
    if counted.losses <= 0:
        return 1.0
    return beta_cdf(0.5, counted.losses, counted.wins + 1.0)
