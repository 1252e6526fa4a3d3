"""A contiguous copy of the keys and values of generating sequences, which saves most of attention's time on a CPU.

Gathering a context from pages copies it in every step. Here a context is copied once, when its sequence begins to
generate, and every step adds its own tokens. Pages stay authoritative, so the copy can be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import NamedTuple

import torch
from torch import Tensor

from engines.embedded.kv.store import KVStore
from engines.embedded.sequence import Sequence
from engines.layers import narrow_kv

POSITIONS_STEP = 128
"""Capacity grows by this many positions, so that it seldom grows."""
MAX_WASTE = 2.5
"""Limit of (largest context * sequences) / positions in use. Above it, it is cheaper to gather."""


SMALL = 2048
"""Below this number of positions, gathering never pays."""


class Span(NamedTuple):
    """Tokens start..stop-1 of a sequence, to be computed."""

    sequence: Sequence
    start: int
    stop: int


class ContextMirror:
    """One tensor, (layers, 2, slots, kv_heads, positions, head_dim). The sequences of a step have the first slots."""

    def __init__(self, store: KVStore, dtype: torch.dtype, most_bytes: int) -> None:
        """dtype: number format of the copies. most_bytes: limit of their size."""
        self._store = store
        self._dtype = dtype
        self._most_bytes = most_bytes
        self._order: list[Sequence] = []
        """Sequences by their slot in the copy."""
        self._spans: dict[Sequence, Span] = {}
        """The span of each sequence in the last step; all positions before it are copied."""
        self._room: Tensor = torch.empty(0)
        self._slots = self._positions = 0
        self.layers: tuple[Tensor, ...] = ()
        self.stride = 0
        """Rows from one slot to the next, in a layer viewed as (…, head_dim). The first head's key of a position is in
        row slot * stride + position."""
        self.offsets: Tensor = torch.empty(0)
        """(2 * kv_heads,) row offsets from that key to the position's keys and values of all heads."""

    def arrange(self, spans: Rows[Span]) -> list[Span] | None:
        """Make room for the spans and copy their contexts here. Returns them by slot, or None if there are none or the
        copy does not pay.

        Call it once in every step that computes generated tokens; otherwise the copy would miss tokens.
        """
        longest = max((span.stop for span in spans), default=0)
        if not self._pays(spans, longest):
            self._order, self._spans = [], {}
            return None
        requested = {span.sequence: span for span in spans}
        self._leave(requested)
        self._order += [span.sequence for span in spans if span.sequence not in self._spans]
        self._grow(len(self._order), longest)
        for slot, sequence in enumerate(self._order):
            span, last = requested[sequence], self._spans.get(sequence)
            if last is None or not last.start <= span.start <= last.stop:
                self._fill(slot, span)
        self._spans = requested
        return [requested[sequence] for sequence in self._order]

    def clear(self) -> None:
        """Drop all contents, including NaN and infinity."""
        self._order, self._spans = [], {}
        self._room, self._slots, self._positions = torch.empty(0), 0, 0

    def _pays(self, spans: Rows[Span], longest: int) -> bool:
        used = sum(span.stop for span in spans)
        if not used:
            return False
        token_bytes = self._store.elements_per_token * self._dtype.itemsize
        padded = len(spans) * longest
        return padded <= MAX_WASTE * used + SMALL and padded * token_bytes <= self._most_bytes

    def _leave(self, requested: dict[Sequence, Span]) -> None:
        """Fill the slots of sequences that left with the last sequences."""
        for slot in range(len(self._order) - 1, -1, -1):
            left = self._order[slot]
            if left in requested:
                continue
            del self._spans[left]
            last = self._order.pop()
            if last is not left:
                stop = self._spans[last].stop
                self._room[:, :, slot, :, :stop] = self._room[:, :, len(self._order), :, :stop]
                self._order[slot] = last

    def _grow(self, slots: int, positions: int) -> None:
        if slots <= self._slots and positions <= self._positions:
            return
        kept, old_slots, old_positions = self._room, self._slots, self._positions
        if slots > self._slots:
            self._slots = 1 << (slots - 1).bit_length()
        if positions > self._positions:
            self._positions = -(-(positions + POSITIONS_STEP // 2) // POSITIONS_STEP) * POSITIONS_STEP
        layers, _, _, _, heads, _ = self._store.pages.shape
        # zeros, because hidden positions have weight 0, and 0 times a leftover NaN is NaN
        self._room = torch.zeros(
            layers, 2, self._slots, heads, self._positions, self._store.head_dim, dtype=self._dtype
        )
        if self._spans:
            self._room[:, :, :old_slots, :, :old_positions] = kept
        self.layers = self._room.unbind(0)
        self.stride = heads * self._positions
        which = torch.arange(2)[:, None] * (self._slots * heads)
        self.offsets = ((which + torch.arange(heads)) * self._positions).flatten()

    def _fill(self, slot: int, span: Span) -> None:
        pages = self._store.pages
        numbers = torch.tensor(span.sequence.pages[: -(-span.start // self._store.page_tokens)])
        context = pages.index_select(1, numbers).flatten(1, 2)[:, : span.start]
        if self._store.is_narrow:
            context = narrow_kv.decode(context, self._dtype)
        # (layers, tokens, 2, kv_heads, head_dim)
        self._room[:, :, slot, :, : span.start] = context.permute(0, 2, 3, 1, 4)
