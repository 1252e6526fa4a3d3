"""The order in which xdist's processes take groups of tests, so that none of them ends long after the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def scheduling_order(groups: Sequence[str]) -> list[int]:
    """groups: of each test. Returns the tests' indices. Groups of several files, which share something costly, come
    first, largest first; then single files, smallest first. A file of one test starts a deployment or computes for
    seconds; a file of a hundred tests ends within seconds, and any process may take it last.

    xdist's own order, by the number of tests, begins the long single tests last, and one process waits for the other.
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
