"""Cross entropy over a wide vocabulary, some rows at a time, with its gradients computed in the same pass.

The scores of all rows, in float32 and with their gradients, are tens of megabytes that pass through memory several
times. A few hundred rows at a time stay in the cache, and only the gradients of the inputs are kept, as in the Liger
kernels for GPUs (Hsu et al. 2024).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS_CPU, ROWS_GPU = 512, 8192


def cross_entropy_sum(hidden: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Sum over rows of the loss in nats of `targets` (rows) under the scores `hidden @ table.T`.

    hidden: (rows, size), in the type to compute in; table: (vocabulary, size), float32. The softmax is float32.
    """
    rows = ROWS_CPU if hidden.device.type == "cpu" else ROWS_GPU
    loss: Tensor = InRows.apply(hidden, table, targets, rows)  # type: ignore[no-untyped-call]
    return loss


class InRows(torch.autograd.Function):
    """`cross_entropy_sum`, `rows` at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, targets: Tensor, rows: int) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            cast = table.to(hidden.dtype)
            for_hidden, for_table = torch.empty_like(hidden), torch.zeros_like(table)
            loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
            for start in range(0, len(hidden), rows):
                part, wanted = hidden[start : start + rows], targets[start : start + rows, None]
                shares = torch.mm(part, cast.t()).float().softmax(-1)
                right = shares.gather(1, wanted)
                loss -= right.clamp_min(torch.finfo(torch.float32).tiny).log().sum()
                slopes = shares.scatter_(1, wanted, right - 1).to(hidden.dtype)
                for_hidden[start : start + rows] = torch.mm(slopes, cast)
                for_table += torch.mm(slopes.t(), part)
        ctx.save_for_backward(for_hidden, for_table)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        for_hidden, for_table = ctx.saved_tensors
        return for_hidden * gradients[0], for_table * gradients[0], None, None
