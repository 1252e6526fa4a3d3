"""The queue of sequences that are not running yet."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from engines.embedded.sequence import Sequence


class WaitingQueue:
    """Higher priority first, then order of arrival; waiting raises priority. A preempted sequence keeps its place.

    Waiting `ageing_s` seconds is worth one step of priority, so nothing starves. Everyone ages at the same speed:
    who comes first among two never changes, and the place can be computed once, on arrival.
    """

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._heap: list[tuple[float, int, Sequence]] = []
        self._parked: dict[Sequence, list[Sequence]] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        # metrics ask from another thread: the tuple is made in one go
        return len(self._heap) + sum(map(len, tuple(self._parked.values())))

    @property
    def preempted(self) -> int:
        """How many of them have run before."""
        return sum(entry[2].preemptions > 0 for entry in self._heap)

    def push(self, sequence: Sequence) -> None:
        """Add a new sequence, or put back one that was preempted."""
        if not sequence.order:
            sequence.order = next(self._numbers)
            sequence.due_s = sequence.arrived_s - sequence.request.priority * self._ageing_s
        heapq.heappush(self._heap, (sequence.due_s, sequence.order, sequence))

    def peek(self) -> Sequence | None:
        """The next sequence, left in the queue."""
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Sequence:
        """Take the next sequence. Raises IndexError when there is none."""
        return heapq.heappop(self._heap)[2]

    def park(self, leader: Sequence) -> None:
        """Set aside the new choices of the leader's prompt: when it is computed, they start from there."""

        def follows(other: Sequence) -> bool:
            return other.request is leader.request and other.prompt_index == leader.prompt_index and other.is_new

        if followers := self._extract(follows):
            self._parked[leader] = followers

    def unpark(self, leader: Sequence) -> list[Sequence]:
        """The sequences set aside for a leader, which are in the queue no longer."""
        return self._parked.pop(leader, [])

    def remove(self, unwanted: Callable[[Sequence], bool]) -> list[Sequence]:
        """Take out and return every sequence for which `unwanted` holds, in order of arrival."""
        removed = self._extract(unwanted)
        for leader, followers in list(self._parked.items()):
            removed += [sequence for sequence in followers if unwanted(sequence)]
            if left := [sequence for sequence in followers if not unwanted(sequence)]:
                self._parked[leader] = left
            else:
                del self._parked[leader]
        return sorted(removed, key=lambda sequence: sequence.order)

    def _extract(self, wanted: Callable[[Sequence], bool]) -> list[Sequence]:
        found = [entry for entry in self._heap if wanted(entry[2])]
        if found:
            self._heap = [entry for entry in self._heap if not wanted(entry[2])]
            heapq.heapify(self._heap)
        return [entry[2] for entry in sorted(found, key=lambda entry: entry[:2])]
