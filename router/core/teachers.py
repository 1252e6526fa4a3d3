"""Who may teach what a whole pool believes: one organization not more than all others together.

Reports beyond that teach nothing. An organization that is all but alone teaches all there is to learn: as soon as the
others have had a small part of the last reports, they count as much as it does.
"""

from __future__ import annotations

from router.core.slowness import CELLS, cell_of

KEPT = 0.998
"""Per report: about the last five hundred count."""
OTHERS_ENOUGH = 8.0
"""Reports of others, of those, from which on they are enough to learn a pool from."""


class Teachers:
    """One pool's, for one kind of report. Organizations are the cells of `slowness`."""

    __slots__ = ("_taught",)

    def __init__(self) -> None:
        self._taught = [0.0] * CELLS

    def admits(self, organization_id: str) -> bool:
        """A report of this organization has come: whether it is to be learnt from."""
        self._taught = [taught * KEPT for taught in self._taught]
        cell = cell_of(organization_id)
        own = self._taught[cell]
        others = sum(self._taught) - own
        if others >= OTHERS_ENOUGH and own + 1.0 > others:
            return False
        self._taught[cell] += 1.0
        return True
