"""A linear layer with 8-bit integer weights and bf16 activations."""

from __future__ import annotations

import torch
from torch import Tensor

MAX = 127


class Int8Linear:
    """y = x W^T + b with W rounded to 255 steps of a row's own size.

    Activations are not rounded. Rounding them by one scale for the batch, as the faster dynamic kernels do, makes a
    row's result depend on what else is in the batch; here a row has the same bits alone and among others. On a CPU one
    row takes a third to a half of bf16's time, from some 8 rows on more than bf16's: good for few users, bad for many.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: (out, in) float32; bias: (out,)."""
        self.shape = tuple(weight.shape)
        scales = (weight.abs().amax(1) / MAX).clamp_min(torch.finfo(torch.float32).tiny)
        self._weight = (weight / scales[:, None]).round_().clamp_(-MAX, MAX).to(torch.int8)
        self._scales = scales.bfloat16()
        self._bias = None if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in) bf16. Returns (tokens, out) bf16."""
        out: Tensor = torch._weight_int8pack_mm(x, self._weight, self._scales)
        return out if self._bias is None else out.add_(self._bias)
