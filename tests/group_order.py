"""The order in which xdist's processes take groups of tests, so that none of them ends long after the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def longest_first(groups: Sequence[str]) -> list[int]:
    """groups: of each test. Returns the tests' indices: groups of several files begin, the largest first, for they
    share something costly; then come files, the smallest first. A file of one test starts a deployment or computes for
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
