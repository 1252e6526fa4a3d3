"""A compiled grammar, and the position of one sequence in it."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher
from torch import Tensor

from engines.embedded.grammar.rehearsal import error_of


class Guide:
    """A compiled grammar, shared by the sequences that follow it.

    They also share its lexer, whose states have a limit: states that one sequence adds reduce the room of all.
    """

    def __init__(self, matcher: LLMatcher) -> None:
        """matcher: at its beginning; never advanced here."""
        self._matcher = matcher

    def start(self) -> GuideState:
        """A new sequence's state in the grammar."""
        return GuideState(self._matcher.deep_copy())

    @property
    def exhausted(self) -> bool:
        """Its lexer is full: no further sequence can begin."""
        probe = self._matcher.deep_copy()
        probe.compute_bitmask()
        return probe.is_error()


class GuideState:
    """Belongs to a sequence's tokens, not to their keys and values: a preempted sequence keeps it unchanged."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def finished(self) -> bool:
        """No further token may follow."""
        return self._matcher.is_stopped()

    @property
    def error(self) -> str | None:
        """The reason the grammar cannot be followed any further (a resource limit, a token it forbids), or None."""
        return error_of(self._matcher)

    def advance(self, id_: int) -> None:
        """Process a sampled token. A token that the mask forbids is an error."""
        self._matcher.consume_token(id_)

    def count_valid(self, ids: list[int]) -> int:
        """Number of leading `ids` that the grammar accepts one after the other. Changes nothing."""
        return self._matcher.validate_tokens(ids)

    def fill(self, rows: Tensor, drafts: Sequence[int] = ()) -> None:
        """Write masks, one bit per token: rows[0] for the next token, rows[i] for the one after the first i drafts.

        rows: (1 + drafts, ceil(vocabulary / 32)) int32 zeros, on the CPU, contiguous. drafts: as many as `count_valid`
        takes. Rows after the end of the grammar stay 0. When `error` is set afterwards, the masks are meaningless.
        """
        self._fill(rows[0])
        taken = 0
        for row, id_ in zip(rows[1:], drafts, strict=True):
            if self.finished:
                break
            self._matcher.consume_token(id_)
            taken += 1
            if not self.finished:
                self._fill(row)
        if taken and self.error is None:
            self._matcher.rollback(taken)

    def _fill(self, row: Tensor) -> None:
        self._matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.numel() * 4)
