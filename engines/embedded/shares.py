"""Divides memory and slots among organizations at one moment.

Each organization that runs or waits has an equal share of both. It may hold more than its share until another
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
        # hot path, run in every step with waiting sequences
        for sequence in running:
            name, reserved, owned = sequence.organization, sequence.most_pages, len(sequence.pages)
            pages[name] = pages.get(name, 0) + (reserved if reserved > owned else owned)
            places[name] = places.get(name, 0) + 1

    def held(self, organization: str, more_pages: int = 0, more_places: int = 0) -> float:
        """An organization's holding in multiples of its share, of pages or of slots, whichever is larger."""
        pages, places = self._pages.get(organization, 0), self._places.get(organization, 0)
        sharing = len(self._pages)
        return max(
            (pages + more_pages) * sharing / self._total_pages, (places + more_places) * sharing / self._max_running
        )

    def holds_nothing(self, organization: str) -> bool:
        """Whether the organization runs nothing."""
        return not self._places.get(organization)

    def entitles(self, sequence: Sequence, most_pages: int) -> bool:
        """Whether the organization stays within its share if the sequence starts with `most_pages`."""
        return self.held(sequence.organization, most_pages, 1) <= 1

    def yielding(
        self, sequence: Sequence, running: list[Sequence], own_pages: Callable[[Sequence], int], lacking: int
    ) -> list[Sequence]:
        """Sequences to preempt so that an entitled sequence gets a slot and the `lacking` pages; [] if all would not
        suffice.

        They are the last in the queue order of the organizations furthest above their shares, none of a higher
        priority, and never an organization's only sequence. own_pages: pages that a sequence frees.
        """
        candidates = [
            other
            for other in running
            if other.organization != sequence.organization and other.request.priority <= sequence.request.priority
        ]
        leaving: list[Sequence] = []
        while lacking > 0 or not leaving:
            above_share = [other for other in candidates if self._gives(other.organization)]
            if not above_share:
                break
            last = max(above_share, key=self.leaves_first)
            candidates.remove(last)
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
        """Sort key. The sequence with the largest key is preempted first: the lowest priority, then the organization
        that holds the most, then the last in queue order."""
        held = self.held(sequence.organization)
        return -sequence.request.priority, held, sequence.due_s, sequence.order
