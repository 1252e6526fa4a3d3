"""Divides memory and slots among organizations at one moment.

Each organization that runs or waits has an equal share of both. It keeps its holding above that share until another
organization needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engines.embedded.sequence import Sequence


class Shares:
    """Counts pages and slots of running sequences. Reserved pages count as held."""

    def __init__(
        self, running: Iterable[Sequence], waiting: tuple[str, ...], total_pages: int, max_running: int
    ) -> None:
        """waiting: organizations with waiting sequences."""
        self._total_pages = total_pages
        self._max_running = max_running
        self._pages = pages = dict.fromkeys(waiting, 0)
        self._places = places = dict.fromkeys(waiting, 0)
        # a hot path: built in every step with waiting sequences
        for sequence in running:
            name, most, taken = sequence.organization, sequence.most_pages, len(sequence.pages)
            pages[name] = pages.get(name, 0) + (most if most > taken else taken)
            places[name] = places.get(name, 0) + 1

    def held(self, organization: str, more_pages: int = 0, more_places: int = 0) -> float:
        """An organization's holding in multiples of its share: pages or slots, the larger of the two."""
        pages, places = self._pages.get(organization, 0), self._places.get(organization, 0)
        sharing = len(self._pages)
        return max(
            (pages + more_pages) * sharing / self._total_pages, (places + more_places) * sharing / self._max_running
        )

    def holds_nothing(self, organization: str) -> bool:
        """The organization runs nothing."""
        return not self._places.get(organization)

    def entitles(self, sequence: Sequence, most_pages: int) -> bool:
        """The sequence, with `most_pages`, leaves its organization within its share."""
        return self.held(sequence.organization, most_pages, 1) <= 1

    def yielding(
        self, sequence: Sequence, running: list[Sequence], own_pages: Callable[[Sequence], int], lacking: int
    ) -> list[Sequence]:
        """Sequences to preempt so that an entitled sequence finds a slot and the `lacking` pages.

        They are the last in line of the organizations furthest above their share, none of a higher priority, and never
        an organization's only one. Empty: preempting them all would not suffice. own_pages: pages freed by a sequence.
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
        """Sort key; the sequence with the largest is preempted first: the lowest priority, then the organization that
        holds the most, then the last in line."""
        held = self.held(sequence.organization)
        return -sequence.request.priority, held, sequence.due_s, sequence.order
