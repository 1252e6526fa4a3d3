"""The order in which xdist's workers take groups of tests, so that no worker ends long after the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def scheduling_order(groups: Sequence[str]) -> list[int]:
    """The tests' indices in the order of their groups. groups: the group of each test.

    Groups of several files, which share a costly fixture, come first, the largest first. Single files follow, the
    smallest first: a file of one test starts a deployment or computes for seconds, while a file of a hundred tests ends
    within seconds. xdist's own order, by the number of tests, would start the long single tests last.
    """
    sizes = Counter(groups)
    shared = {group for group in sizes if not group.endswith(".py")}
    return sorted(
        range(len(groups)),
        key=lambda at: (
            groups[at] not in shared,
            -sizes[groups[at]] if groups[at] in shared else sizes[groups[at]],
            groups[at],
        ),
    )
