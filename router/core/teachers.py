"""Chooses the reports from which a pool's model learns: one organization counts at most as much as all others together.

Further reports of that organization are ignored. An organization that is almost alone teaches everything; once the
others have had a small part of the latest reports, they count as much as it does.
"""

from __future__ import annotations

from router.core.slowness import CELLS, cell_of

KEPT = 0.998
"""Decay per report, so that about the last five hundred count."""
OTHERS_ENOUGH = 8.0
"""Decayed number of others' reports from which a pool can be learnt from them alone."""


class Teachers:
    """The teachers of one pool, for one kind of report. Organizations are the cells of `slowness`."""

    __slots__ = ("_taught",)

    def __init__(self) -> None:
        self._taught = [0.0] * CELLS

    def admits(self, organization_id: str) -> bool:
        """Process a report of this organization. Returns whether to learn from it."""
        self._taught = [taught * KEPT for taught in self._taught]
        cell = cell_of(organization_id)
        own = self._taught[cell]
        others = sum(self._taught) - own
        if others >= OTHERS_ENOUGH and own + 1.0 > others:
            return False
        self._taught[cell] += 1.0
        return True
