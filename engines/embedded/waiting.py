"""The queue of sequences that are not running yet."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator

from engines.embedded.sequence import Sequence

Line = list[tuple[float, int, Sequence]]


class WaitingQueue:
    """A queue per organization, ordered by priority and then by arrival; waiting raises priority. A preempted sequence
    keeps its position.

    A wait of `ageing_s` seconds is worth one step of priority, so no sequence starves. All sequences age at the same
    speed, so the order of two never changes, and a position is computed once, on arrival.
    """

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._lines: dict[str, Line] = {}
        """The queues by organization, none of which is empty."""
        self._parked: dict[Sequence, list[Sequence]] = {}
        self._numbers = itertools.count(1)

    def __bool__(self) -> bool:
        """Whether a sequence waits."""
        return bool(self._lines or self._parked)

    def __len__(self) -> int:
        # metrics read this from another thread, so each tuple is created in one call
        lines, parked = tuple(self._lines.values()), tuple(self._parked.values())
        return sum(map(len, lines)) + sum(map(len, parked))

    @property
    def preempted(self) -> int:
        """Number of waiting sequences that have run before."""
        return sum(entry[2].preemptions > 0 for line in tuple(self._lines.values()) for entry in line)

    @property
    def organizations(self) -> tuple[str, ...]:
        """Organizations with a queue."""
        return tuple(self._lines)

    def lines(self, held: Callable[[str], float]) -> list[Line]:
        """All queues, ordered by the first sequence of each. held: an organization's holding in multiples of its share,
        each of which moves its queue back by one step of priority."""
        order = {name: line[0][0] + self._ageing_s * held(name) for name, line in self._lines.items()}
        return [self._lines[name] for name in sorted(order, key=lambda name: (order[name], self._lines[name][0][1]))]

    def push(self, sequence: Sequence) -> None:
        """Add a new sequence, or return a preempted one to the queue."""
        if not sequence.order:
            sequence.order = next(self._numbers)
            sequence.due_s = sequence.arrived_s - sequence.request.priority * self._ageing_s
        line = self._lines.setdefault(sequence.organization, [])
        bisect.insort(line, (sequence.due_s, sequence.order, sequence))

    def take(self, sequence: Sequence) -> None:
        """Remove a sequence that starts. Raises ValueError if it is not in its queue."""
        name = sequence.organization
        line = self._lines[name]
        line.remove((sequence.due_s, sequence.order, sequence))
        if not line:
            del self._lines[name]

    def park(self, leader: Sequence) -> None:
        """Set aside the new choices of the leader's prompt, which start from the prompt once it is computed."""

        def follows(other: Sequence) -> bool:
            return other.request is leader.request and other.prompt_index == leader.prompt_index and other.is_new

        if followers := self._extract(follows):
            self._parked[leader] = followers

    def unpark(self, leader: Sequence) -> list[Sequence]:
        """Remove and return the sequences set aside for a leader."""
        return self._parked.pop(leader, [])

    def remove(self, unwanted: Callable[[Sequence], bool]) -> list[Sequence]:
        """Remove and return every sequence for which `unwanted` holds, in order of arrival."""
        removed = self._extract(unwanted)
        for leader, followers in list(self._parked.items()):
            removed += [sequence for sequence in followers if unwanted(sequence)]
            if left := [sequence for sequence in followers if not unwanted(sequence)]:
                self._parked[leader] = left
            else:
                del self._parked[leader]
        return sorted(removed, key=lambda sequence: sequence.order)

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences in the queues, without those set aside."""
        return (entry[2] for line in self._lines.values() for entry in line)

    def _extract(self, matches: Callable[[Sequence], bool]) -> list[Sequence]:
        found: Line = []
        for name, line in list(self._lines.items()):
            own = [entry for entry in line if matches(entry[2])]
            if len(own) == len(line):
                del self._lines[name]
            elif own:
                self._lines[name] = [entry for entry in line if not matches(entry[2])]
            found += own
        return [entry[2] for entry in sorted(found, key=lambda entry: entry[:2])]
