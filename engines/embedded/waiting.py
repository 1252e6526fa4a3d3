"""The queue of sequences that are not running yet."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from engines.embedded.sequence import Sequence


class WaitingQueue:
    """Higher priority first, then order of arrival. A preempted sequence keeps its place."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, sequence: Sequence) -> None:
        """Add a new sequence, or put back one that was preempted."""
        if not sequence.order:
            sequence.order = next(self._numbers)
        heapq.heappush(self._heap, (-sequence.request.priority, sequence.order, sequence))

    def peek(self) -> Sequence | None:
        """The next sequence, left in the queue."""
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Sequence:
        """Take the next sequence. Raises IndexError when there is none."""
        return heapq.heappop(self._heap)[2]

    def remove(self, unwanted: Callable[[Sequence], bool]) -> list[Sequence]:
        """Take out and return every sequence for which `unwanted` holds, in order of arrival."""
        removed = [entry[2] for entry in self._heap if unwanted(entry[2])]
        if removed:
            self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
            heapq.heapify(self._heap)
        return sorted(removed, key=lambda sequence: sequence.order)

    def waiting_tokens(self) -> int:
        """Tokens still to be computed by all of them."""
        return sum(entry[2].pending for entry in self._heap)
