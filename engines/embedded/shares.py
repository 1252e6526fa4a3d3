"""How memory and places are divided among organizations at one moment.

Each organization that runs or waits has the same part of both. What one holds beyond its part it holds until another
needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engines.embedded.sequence import Sequence


class Shares:
    """Counts what running sequences hold; pages that were promised count as pages that were taken."""

    def __init__(
        self, running: Iterable[Sequence], waiting: tuple[str, ...], total_pages: int, max_running: int
    ) -> None:
        """waiting: organizations with sequences that do."""
        self._total_pages = total_pages
        self._max_running = max_running
        self._pages = pages = dict.fromkeys(waiting, 0)
        self._places = places = dict.fromkeys(waiting, 0)
        # asked in every step in which somebody waits
        for sequence in running:
            name, most, taken = sequence.organization, sequence.most_pages, len(sequence.pages)
            pages[name] = pages.get(name, 0) + (most if most > taken else taken)
            places[name] = places.get(name, 0) + 1

    def held(self, organization: str, more_pages: int = 0, more_places: int = 0) -> float:
        """What it holds, in parts that it is entitled to: of pages or of places, whichever it has more of."""
        pages, places = self._pages.get(organization, 0), self._places.get(organization, 0)
        sharing = len(self._pages)
        return max(
            (pages + more_pages) * sharing / self._total_pages, (places + more_places) * sharing / self._max_running
        )

    def holds_nothing(self, organization: str) -> bool:
        """It runs nothing."""
        return not self._places.get(organization)

    def entitles(self, sequence: Sequence, most_pages: int) -> bool:
        """Whether its organization holds no more than its part with it, which needs so many pages."""
        return self.held(sequence.organization, most_pages, 1) <= 1

    def yielding(
        self, sequence: Sequence, running: list[Sequence], own_pages: Callable[[Sequence], int], lacking: int
    ) -> list[Sequence]:
        """Who has to leave so that an entitled sequence finds a place and the pages that are `lacking`: of those who
        hold most beyond their part the last in line, none of a higher priority, and nobody's only one. Empty: that
        would not be enough.

        own_pages: what leaves with a sequence.
        """
        left = [
            other
            for other in running
            if other.organization != sequence.organization and other.request.priority <= sequence.request.priority
        ]
        leaving: list[Sequence] = []
        while lacking > 0 or not leaving:
            beyond = [other for other in left if self._gives(other.organization)]
            if not beyond:
                break
            last = max(beyond, key=self.leaves_first)
            left.remove(last)
            leaving.append(last)
            lacking -= own_pages(last)
            self._count(last, -1)
        else:
            return leaving
        for other in leaving:
            self._count(other, 1)
        return []

    def _count(self, sequence: Sequence, places: int) -> None:
        name = sequence.organization
        self._pages[name] = self._pages.get(name, 0) + places * max(sequence.most_pages, len(sequence.pages))
        self._places[name] = self._places.get(name, 0) + places

    def _gives(self, organization: str) -> bool:
        return self._places[organization] > 1 and self.held(organization) > 1

    def leaves_first(self, sequence: Sequence) -> tuple[int, float, float, int]:
        """The largest is the one to leave: of the lowest priority, of the organization that holds most, the last in
        line."""
        held = self.held(sequence.organization)
        return -sequence.request.priority, held, sequence.due_s, sequence.order
