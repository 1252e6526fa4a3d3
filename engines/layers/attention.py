"""Attention over keys and values that lie in pages, for a batch that mixes single tokens and chunks of prompts.

The batch is flat: (tokens, heads, head_dim), first the sequences that compute one token (and drafts), sorted so that
similar context lengths stand together, then the chunks. `AttentionPlan` says which rows belong to what; this module
knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class TokenGroup:
    """Rows start..stop-1: sequences that compute `tokens` consecutive tokens each, over contexts of similar length."""

    start: int
    stop: int
    tokens: int
    pages: Tensor
    """(sequences * pages per sequence,) page numbers; those with fewer repeat any page, hidden by the bias."""
    bias: Tensor
    """(sequences, 1, tokens, positions): 0 where the token may look, -inf elsewhere."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows start..stop-1 are consecutive tokens of one sequence."""

    start: int
    stop: int
    pages: Tensor
    """(pages,) page numbers of the context, this chunk included."""
    bias: Tensor | None
    """(rows, positions); None when nothing precedes the chunk, so that it is plainly causal and needs no pages."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Where each row's keys and values go, and what it looks at."""

    slots: Tensor
    """(tokens,) page * page_tokens + offset."""
    groups: tuple[TokenGroup, ...]
    chunks: tuple[Chunk, ...]


class PagedAttention:
    """Grouped-query attention of one model shape."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        self._heads = heads
        self._kv_heads = kv_heads
        self._head_dim = head_dim

    def __call__(self, q: Tensor, kv: Tensor, pages: Tensor, plan: AttentionPlan) -> Tensor:
        """Write the batch's keys and values to their slots, then attend.

        q: (tokens, heads * head_dim); kv: (tokens, 2 * kv_heads * head_dim), keys then values; pages: one layer's
        store, (pages, page_tokens, 2, kv_heads, head_dim). Returns (tokens, heads * head_dim).
        """
        pages.view(-1, kv.shape[1]).index_copy_(0, plan.slots, kv)
        outputs = [self._group(q[group.start : group.stop], pages, group) for group in plan.groups]
        outputs += [self._chunk(q[c.start : c.stop], kv[c.start : c.stop], pages, c) for c in plan.chunks]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _group(self, q: Tensor, pages: Tensor, group: TokenGroup) -> Tensor:
        tokens, shared = group.tokens, self._heads // self._kv_heads
        sequences = q.shape[0] // tokens
        keys, values = self._gather(pages, group.pages, sequences)
        # the query heads that share a kv head act as its query positions: no key is repeated in memory
        if tokens == 1:
            queries = q.view(sequences, self._kv_heads, shared, self._head_dim)
            out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=group.bias)
            return out.reshape(sequences, -1)
        queries = q.view(sequences, tokens, self._kv_heads, shared, self._head_dim).transpose(1, 2)
        queries = queries.reshape(sequences, self._kv_heads, tokens * shared, self._head_dim)
        bias = group.bias.repeat_interleave(shared, 2)
        out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        out = out.view(sequences, self._kv_heads, tokens, shared, self._head_dim).transpose(1, 2)
        return out.reshape(sequences * tokens, -1)

    def _chunk(self, q: Tensor, kv: Tensor, pages: Tensor, chunk: Chunk) -> Tensor:
        rows = q.shape[0]
        queries = q.view(1, rows, self._heads, self._head_dim).transpose(1, 2)
        if chunk.bias is None:
            own = kv.view(1, rows, 2, self._kv_heads, self._head_dim)
            keys, values = own[:, :, 0].transpose(1, 2), own[:, :, 1].transpose(1, 2)
            out = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        else:
            keys, values = self._gather(pages, chunk.pages, 1)
            out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=chunk.bias, enable_gqa=True)
        return out.transpose(1, 2).reshape(rows, -1)

    def _gather(self, pages: Tensor, numbers: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages, each (rows, kv_heads, positions, head_dim)."""
        # flat rows of a page make one memcpy each; gathering single positions is several times slower
        flat = pages.view(pages.shape[0], -1).index_select(0, numbers)
        both = flat.view(rows, -1, 2, self._kv_heads, self._head_dim)
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)
