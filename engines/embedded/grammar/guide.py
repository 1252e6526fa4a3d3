"""A compiled grammar and the position of one sequence in it."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher
from torch import Tensor

from engines.embedded.grammar.rehearsal import error_of


class Guide:
    """A compiled grammar, shared by the sequences that follow it.

    They also share its lexer. Its number of states is limited, so states that one sequence adds leave fewer for all.
    """

    def __init__(self, matcher: LLMatcher) -> None:
        """matcher: at the beginning of the grammar; it is never advanced here."""
        self._matcher = matcher

    def start(self) -> GuideState:
        """Return the state of a new sequence."""
        return GuideState(self._matcher.deep_copy())

    @property
    def exhausted(self) -> bool:
        """Whether the lexer is full, so that no further sequence can begin."""
        probe = self._matcher.deep_copy()
        probe.compute_bitmask()
        return probe.is_error()


class GuideState:
    """The position of a sequence in a grammar. It depends on the tokens only, so a preempted sequence keeps it."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def finished(self) -> bool:
        """Whether no further token may follow."""
        return self._matcher.is_stopped()

    @property
    def error(self) -> str | None:
        """The reason why the grammar cannot continue (a resource limit or a forbidden token), or None."""
        return error_of(self._matcher)

    def advance(self, id_: int) -> None:
        """Process a sampled token. A token that the mask forbids sets `error`."""
        self._matcher.consume_token(id_)

    def count_valid(self, ids: list[int]) -> int:
        """Number of leading `ids` that the grammar accepts in sequence. Changes nothing."""
        return self._matcher.validate_tokens(ids)

    def fill(self, rows: Tensor, drafts: Sequence[int] = ()) -> None:
        """Write masks, one bit per token: rows[0] for the next token, rows[i] for the one after the first i drafts.

        rows: (1 + drafts, ceil(vocabulary / 32)) int32 zeros, on the CPU, contiguous. drafts: at most as many as
        `count_valid` accepts. Rows after the end of the grammar stay 0. If `error` is set afterwards, the masks are
        meaningless.
        """
        self._fill(rows[0])
        advanced = 0
        for row, id_ in zip(rows[1:], drafts, strict=True):
            if self.finished:
                break
            self._matcher.consume_token(id_)
            advanced += 1
            if not self.finished:
                self._fill(row)
        if advanced and self.error is None:
            self._matcher.rollback(advanced)

    def _fill(self, row: Tensor) -> None:
        self._matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.numel() * 4)
