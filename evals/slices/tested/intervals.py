"""Arithmetic on closed intervals of whole numbers, as pairs of a first and a last number."""

from __future__ import annotations

Interval = tuple[int, int]


def overlap(one: Interval, other: Interval) -> Interval | None:
    """The numbers that both have; None: there are none."""
    first = max(one[0], other[0])
    last = min(one[1], other[1])
    return (first, last) if first <= last else None


def merged(intervals: list[Interval]) -> list[Interval]:
    """The fewest intervals with the same numbers, in order."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def gaps(intervals: list[Interval], first: int, last: int) -> list[Interval]:
    """The numbers from first to last that no interval has."""
    missing: list[Interval] = []
    following = first
    for start, end in merged(intervals):
        if end < first:
            continue
        if start > last:
            break
        if start > following:
            missing.append((following, start - 1))
        following = max(following, end + 1)
    if following <= last:
        missing.append((following, last))
    return missing


def covered(intervals: list[Interval]) -> int:
    """How many numbers the intervals have together."""
    total = 0
    for first, last in merged(intervals):
        total += last - first + 1
    return total


def without(interval: Interval, removed: Interval) -> list[Interval]:
    """What is left of an interval."""
    shared = overlap(interval, removed)
    if shared is None:
        return [interval]
    left: list[Interval] = []
    if interval[0] < shared[0]:
        left.append((interval[0], shared[0] - 1))
    if shared[1] < interval[1]:
        left.append((shared[1] + 1, interval[1]))
    return left


def busiest(intervals: list[Interval]) -> int:
    """The number that most intervals have, the smallest of several. Raises ValueError without an interval."""
    if not intervals:
        raise ValueError("there is no interval")
    changes: dict[int, int] = {}
    for first, last in intervals:
        changes[first] = changes.get(first, 0) + 1
        changes[last + 1] = changes.get(last + 1, 0) - 1
    best, most, running = 0, 0, 0
    for number in sorted(changes):
        running += changes[number]
        if running > most:
            best, most = number, running
    return best
