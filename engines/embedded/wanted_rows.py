"""Decides between the blocks of a running step which rows are still needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from engines.embedded.kv.mirror import Span
from engines.embedded.sequence import Sequence


class _Placed(NamedTuple):
    """The tokens of a sequence from `start` on, in the rows first..stop-1."""

    sequence: Sequence
    start: int
    first: int
    stop: int


class WantedRows:
    """The rows of one step. Rows whose sequences have all ended need not be computed. The tokens computed so far are
    kept, because the prompt of a user who types on is the beginning of the next prompt."""

    def __init__(self, order: Iterable[Span], poll_commands: Callable[[], None]) -> None:
        """order: the spans, in the order of their rows. poll_commands: may end sequences by setting `finish`."""
        self.cut: dict[Sequence, int] = {}
        """The number of tokens with keys and values, for sequences that were cut short."""
        self._poll_commands = poll_commands
        self._placed: list[_Placed] = []
        row = 0
        for sequence, start, stop in order:
            self._placed.append(_Placed(sequence, start, row, row + stop - start))
            row += stop - start

    def goes_on(self, start: int, stop: int) -> bool:
        """Whether the rows start..stop-1 must be computed or continued. It is called for block after block."""
        self._poll_commands()
        within = [one for one in self._placed if one.first < stop and start < one.stop]
        if any(one.sequence.finish is None for one in within):
            return True
        for one in within:
            # an earlier block may have set this already
            self.cut.setdefault(one.sequence, one.start + max(start - one.first, 0))
        return False
