"""Causal attention for training.

On a GPU, torch's own kernel computes it. On a CPU, that kernel takes half of a training step for a model this small, so
blocks of queries are computed by plain matrix products, with the query heads that share keys folded into rows. The
backward pass is explicit: in autograd, each block's part of the keys' gradient would be as long as all keys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q: (batch, heads, tokens, dim); k, v: (batch, kv_heads, tokens, dim). Returns the shape of q."""
    if q.device.type == "cpu":
        return blockwise(q, k, v, 128 if q.shape[2] <= 1024 else 256)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def blockwise(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Attend with `block` queries at a time, each block only to the keys up to its end."""
    batch, heads, tokens, dim = q.shape
    rows = batch * k.shape[1]
    shared = heads // k.shape[1]
    grouped = (q * dim**-0.5).reshape(rows, shared, tokens, dim)
    attended: Tensor = Blocks.apply(  # type: ignore[no-untyped-call]
        grouped, k.reshape(rows, tokens, dim), v.reshape(rows, tokens, dim), block
    )
    return attended.view(batch, heads, tokens, dim)


class Blocks(torch.autograd.Function):
    """q: (rows, shared, tokens, dim), scaled; k, v: (rows, tokens, dim)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
        rows, shared, tokens, dim = q.shape
        future = torch.full((block, block), float("-inf"), dtype=q.dtype).triu(1)
        out = torch.empty_like(q)
        kept = []
        for start in range(0, tokens, block):
            end = min(tokens, start + block)
            size = end - start
            queries = q[:, :, start:end].reshape(rows, shared * size, dim)
            weights = torch.bmm(queries, k[:, :end].transpose(1, 2)).view(rows, shared, size, end)
            weights[..., start:end] += future[:size, :size]
            shares = weights.softmax(-1).view(rows, shared * size, end)
            out[:, :, start:end] = torch.bmm(shares, v[:, :end]).view(rows, shared, size, dim)
            kept.append(shares)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.block = block
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        q, k, v, *kept = ctx.saved_tensors
        rows, shared, tokens, dim = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start, shares in zip(range(0, tokens, ctx.block), kept, strict=True):
            end = min(tokens, start + ctx.block)
            size = end - start
            part = gradient[:, :, start:end].reshape(rows, shared * size, dim)
            queries = q[:, :, start:end].reshape(rows, shared * size, dim)
            dv[:, :end].baddbmm_(shares.transpose(1, 2), part)
            slopes = torch.bmm(part, v[:, :end].transpose(1, 2))
            inner = torch.ops.aten._softmax_backward_data(slopes, shares, -1, q.dtype)
            dq[:, :, start:end] = torch.bmm(inner, k[:, :end]).view(rows, shared, size, dim)
            dk[:, :end].baddbmm_(inner.transpose(1, 2), queries)
        return dq, dk, dv, None
