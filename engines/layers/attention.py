"""Attention over keys and values in pages, for a batch that mixes single tokens and chunks of prompts.

The batch is flat, (tokens, heads, head_dim): first the sequences that compute one token and their drafts, then the
chunks. `AttentionPlan` assigns the rows; this module knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from engines.layers import narrow_kv

Rounding = Callable[[Tensor], Tensor]
"""Rounds float32 keys and values, (tokens, 2, kv_heads, head_dim), and returns them in the same shape."""


@dataclass(frozen=True, slots=True)
class TokenGroup:
    """Rows start..stop-1 of sequences that compute `tokens` consecutive tokens each, with contexts of similar
    length."""

    start: int
    stop: int
    tokens: int
    pages: Tensor
    """(sequences * pages per sequence,) page numbers. A sequence with fewer pages repeats one, which the bias hides."""
    bias: Tensor
    """(sequences, 1, tokens, positions): 0 where the token attends, -inf elsewhere. In the number format of the
    computation."""


@dataclass(frozen=True, slots=True)
class MirrorGroup:
    """The first rows of the batch, whose sequences also store keys and values contiguously, so that none are gathered.

    If the sequences compute different numbers of tokens, each gets as many queries as the largest, and the surplus is
    dropped.
    """

    rows: int
    sequences: int
    tokens: int
    """Queries per sequence."""
    positions: int
    """Positions of the longest context."""
    places: Tensor
    """(rows * 2 * kv_heads,) destinations of each row's keys and values in a layer's mirror, one per head."""
    bias: Tensor | None
    """(sequences, 1, tokens, positions); None if every query attends to all positions."""
    spread: Tensor | None
    """(sequences * tokens,) the row of each query; None for all rows in order."""
    back: Tensor | None
    """(rows,) the query of each row; None for all queries in order."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows start..stop-1 are consecutive tokens of one sequence."""

    start: int
    stop: int
    pages: Tensor | None
    """(pages,) page numbers of the context, this chunk included; None if nothing precedes the chunk, which then needs
    only its own keys and values."""
    bias: Tensor | None
    """(rows, positions); None for causal attention without pages."""
    dtype: torch.dtype = torch.float32
    """Number format of the computation and of the bias."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The destination of each row's keys and values, and the context that the row attends to."""

    slots: Tensor
    """(tokens,) page * page_tokens + offset."""
    groups: tuple[TokenGroup, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    mirror: MirrorGroup | None = None

    def within(self, window: int) -> AttentionPlan:
        """The plan for layers that attend only to the last `window` positions, including the token's own."""
        groups = tuple(replace(group, bias=_near(group.bias, window)) for group in self.groups)
        chunks = tuple(_near_chunk(chunk, window) for chunk in self.chunks)
        mirror = self.mirror
        if mirror is not None and mirror.positions > window:
            bias = mirror.bias
            if bias is None:
                bias = torch.zeros(mirror.sequences, 1, mirror.tokens, mirror.positions)
            mirror = replace(mirror, bias=_near(bias, window))
        return AttentionPlan(self.slots, groups, chunks, mirror)


def _near_chunk(chunk: Chunk, window: int) -> Chunk:
    bias, rows = chunk.bias, chunk.stop - chunk.start
    if bias is None:
        if rows <= window:
            return chunk
        bias = torch.full((rows, rows), float("-inf"), dtype=chunk.dtype).triu_(1)
    return replace(chunk, bias=_near(bias, window))


def _near(bias: Tensor, window: int) -> Tensor:
    """Hide the first positions of each context, so that `window` remain. bias: (…, positions)."""
    positions = bias.shape[-1]
    if positions <= window:
        return bias
    # a row attends to all positions up to its own; a draft in a tree attends to as many, but not to its siblings
    seen = (bias == 0).sum(-1, keepdim=True)
    return bias.masked_fill(torch.arange(positions, device=bias.device) < seen - window, float("-inf"))


class PagedAttention:
    """Grouped-query attention of one model shape. Queries may be float32 over pages of a narrower format."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        self._heads = heads
        self._kv_heads = kv_heads
        self._head_dim = head_dim
        self.rounding: Rounding | None = None
        """Applied to keys and values before they are stored, to evaluate a narrower format; None for no rounding."""

    def __call__(self, q: Tensor, kv: Tensor, pages: Tensor, plan: AttentionPlan, mirror: Tensor | None) -> Tensor:
        """Write the batch's keys and values to their slots, then attend.

        q: (tokens, heads * head_dim); kv: (tokens, 2 * kv_heads * head_dim), keys then values; pages: one layer's
        store, (pages, page_tokens, 2, kv_heads, head_dim), or rows of `narrow_kv` in 8 bits; mirror: one layer's, (2,
        sequences, kv_heads, positions, head_dim). Returns (tokens, heads * head_dim).
        """
        if self.rounding is not None:
            heads = kv.float().view(-1, 2, self._kv_heads, self._head_dim)
            kv = self.rounding(heads).reshape(kv.shape)
        if narrow_kv.is_narrow(pages.dtype):
            codes = narrow_kv.encode(kv.view(-1, 2, self._kv_heads, self._head_dim), pages.dtype)
            # the content of the pages as a later read returns it
            rows, kept = codes.flatten(1), narrow_kv.decode(codes, torch.float32).flatten(1)
        else:
            rows = kept = kv.to(pages.dtype)
        pages.view(-1, rows.shape[1]).index_copy_(0, plan.slots, rows)
        if plan.mirror is not None and mirror is not None:
            out = self._mirrored(q[: plan.mirror.rows], kept[: plan.mirror.rows], mirror, plan.mirror)
            if plan.mirror.rows == q.shape[0]:
                return out
            outputs = [out]
        else:
            outputs = []
        outputs += [self._group(q[group.start : group.stop], pages, group) for group in plan.groups]
        outputs += [self._chunk(q[c.start : c.stop], kept[c.start : c.stop], pages, c) for c in plan.chunks]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _mirrored(self, q: Tensor, kept: Tensor, mirror: Tensor, group: MirrorGroup) -> Tensor:
        # stored with the rounding of the pages, so that a context read back from them is equal
        mirror.view(-1, self._head_dim).index_copy_(0, group.places, kept.to(mirror.dtype).reshape(-1, self._head_dim))
        context = mirror[:, : group.sequences, :, : group.positions]
        if group.spread is not None:
            q = q.index_select(0, group.spread)
        out = self._attend(q.to(mirror.dtype), context[0], context[1], group.tokens, group.bias).to(q.dtype)
        return out if group.back is None else out.index_select(0, group.back)

    def _group(self, q: Tensor, pages: Tensor, group: TokenGroup) -> Tensor:
        dtype = group.bias.dtype
        keys, values = self._gather(pages, group.pages, q.shape[0] // group.tokens, dtype)
        return self._attend(q.to(dtype), keys, values, group.tokens, group.bias).to(q.dtype)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, tokens: int, bias: Tensor | None) -> Tensor:
        """q: (sequences * tokens, heads * head_dim); keys, values: (sequences, kv_heads, positions, head_dim)."""
        # query heads that share a KV head act as its query positions, so that no key is repeated in memory
        shared = self._heads // self._kv_heads
        if tokens == 1:
            queries = q.view(-1, self._kv_heads, shared, self._head_dim)
            out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
            return out.reshape(q.shape[0], -1)
        sequences = q.shape[0] // tokens
        queries = q.view(sequences, tokens, self._kv_heads, shared, self._head_dim).transpose(1, 2)
        queries = queries.reshape(sequences, self._kv_heads, tokens * shared, self._head_dim)
        wide = None if bias is None else bias.repeat_interleave(shared, 2)
        out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=wide)
        out = out.view(sequences, self._kv_heads, tokens, shared, self._head_dim).transpose(1, 2)
        return out.reshape(sequences * tokens, -1)

    def _chunk(self, q: Tensor, kept: Tensor, pages: Tensor, chunk: Chunk) -> Tensor:
        rows = q.shape[0]
        queries = q.view(1, rows, self._heads, self._head_dim).transpose(1, 2).to(chunk.dtype)
        if chunk.pages is None:
            own = kept.to(chunk.dtype).reshape(1, rows, 2, self._kv_heads, self._head_dim)
            keys, values = own[:, :, 0].transpose(1, 2), own[:, :, 1].transpose(1, 2)
        else:
            keys, values = self._gather(pages, chunk.pages, 1, chunk.dtype)
        out = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=chunk.bias, is_causal=chunk.bias is None, enable_gqa=True
        )
        return out.transpose(1, 2).reshape(rows, -1).to(q.dtype)

    def _gather(self, pages: Tensor, numbers: Tensor, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Gather the keys and values of whole pages, each (rows, kv_heads, positions, head_dim)."""
        # each page is one flat row, hence one memcpy; gathering single positions is several times slower
        flat = pages.view(pages.shape[0], -1).index_select(0, numbers)
        both = flat.view(rows, -1, 2, self._kv_heads, pages.shape[-1])
        both = narrow_kv.decode(both, dtype) if narrow_kv.is_narrow(pages.dtype) else both.to(dtype)
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)
