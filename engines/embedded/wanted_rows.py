"""Which rows of a running step anybody still waits for, asked between its pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from engines.embedded.kv.mirror import Span
from engines.embedded.sequence import Sequence


class _Placed(NamedTuple):
    """A sequence's tokens from `start` on, in the rows first..stop-1."""

    sequence: Sequence
    start: int
    first: int
    stop: int


class WantedRows:
    """One step's. Rows whose sequences have all ended need not be computed; what was, up to there, is kept: a prompt
    that was typed on is the beginning of the next one."""

    def __init__(self, order: Iterable[Span], poll_commands: Callable[[], None]) -> None:
        """order: what is computed, as its rows stand in the batch. poll_commands: may end sequences (set their
        `finish`)."""
        self.cut: dict[Sequence, int] = {}
        """Of the sequences that were cut short: up to where their tokens have keys and values."""
        self._poll_commands = poll_commands
        self._placed: list[_Placed] = []
        row = 0
        for sequence, start, stop in order:
            self._placed.append(_Placed(sequence, start, row, row + stop - start))
            row += stop - start

    def goes_on(self, start: int, stop: int) -> bool:
        """Whether the rows start..stop-1 are to be computed, or computed further. Asked block after block."""
        self._poll_commands()
        within = [one for one in self._placed if one.first < stop and start < one.stop]
        if any(one.sequence.finish is None for one in within):
            return True
        for one in within:
            # a block further back has said it already
            self.cut.setdefault(one.sequence, one.start + max(start - one.first, 0))
        return False
