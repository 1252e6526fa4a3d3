"""Compares two methods on the same items: the mean difference and its confidence bounds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

ONE_SIDED_95 = NormalDist().inv_cdf(0.95)


class Difference(NamedTuple):
    """A mean of differences between 0 and 1 in size, with a lower and an upper bound at 95 % confidence each."""

    mean: float
    lower: float
    upper: float
    items: int


def difference(one: Sequence[float], other: Sequence[float], groups: Sequence[Hashable]) -> Difference:
    """How much better `one` is. groups: items of one group (such as lines of one file) fail together, so that only the
    groups' sums vary independently; there should be some dozens of groups.

    Source of the variance: the cluster-robust one of a mean (Liang and Zeger 1986), with the factor G / (G - 1).
    Raises ValueError for sequences of different length, or fewer than two groups.
    """
    gains = [a - b for a, b in zip(one, other, strict=True)]
    mean = fmean(gains)
    sums: dict[Hashable, float] = {}
    for gain, group in zip(gains, groups, strict=True):
        sums[group] = sums.get(group, 0.0) + gain - mean
    if len(sums) < 2:
        raise ValueError(f"groups: {len(sums)}; at least two are needed")
    variance = len(sums) / (len(sums) - 1) * sum(value * value for value in sums.values()) / len(gains) ** 2
    margin = ONE_SIDED_95 * math.sqrt(variance)
    return Difference(mean, mean - margin, mean + margin, len(gains))


def edit_similarity(one: str, other: str) -> float:
    """1 minus the Levenshtein distance over the longer text's length: 1 for equal texts, 0 for nothing in common."""
    if one == other:
        return 1.0
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, 1):
        before, row[0] = row[0], number
        for at, against in enumerate(other, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (character != against))
    return 1 - row[-1] / max(len(one), len(other))
