"""A linear layer with 8-bit integer weights and bf16 activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from engines.layers.native.int8 import Int8Panels
    from engines.layers.native.team import Team

MAX = 127
ROWS = 4_096
MULTIPLE = 16
"""Number of inputs must be a multiple; otherwise PyTorch's kernel reads beyond the end of rows."""
MAX_INPUTS = 2**16
"""More inputs might overflow a sum in the native kernels."""


class Int8Linear:
    """y = x W^T + b with each row of W rounded to 255 steps of its own size.

    Activations are not rounded to 8 bits. Rounding them with one scale for the batch, like the faster dynamic kernels,
    would make a row's result depend on the rest of the batch; here a row has the same bits in any batch.

    With the native kernels (`native`), one row takes half the time of bf16 and many rows take the same time. With
    PyTorch's, one row takes a third to a half of PyTorch's bf16 time, and about 8 rows or more take longer.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, native: bool = False, team: Team | None = None
    ) -> None:
        """weight: (out, in); bias: (out,); native: create `panels`, which needs numba; team: the threads that multiply
        by `panels`; None for one thread."""
        self.shape = tuple(weight.shape)
        rounded, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(weight.shape[0])
        # a few rows at a time, or a head of 49,152 words would be in memory four times in float32
        for start in range(0, weight.shape[0], ROWS):
            rows = slice(start, start + ROWS)
            exact = weight[rows].float()
            scales[rows] = (exact.abs().amax(1) / MAX).clamp_min(torch.finfo(torch.float32).tiny)
            rounded[rows] = (exact / scales[rows, None]).round_().clamp_(-MAX, MAX)
        self.bias = None if bias is None else bias.bfloat16()
        """Added to the product."""
        self._weight: Tensor | None = None
        self._scales = scales.bfloat16()
        self.panels: Int8Panels | None = None
        """The weight in the native kernels' layout. It is then the only copy."""
        if native and weight.shape[1] <= MAX_INPUTS:
            from engines.layers.native.int8 import Int8Panels

            self.panels = Int8Panels(rounded, scales, team)
        else:
            self._surplus = -weight.shape[1] % MULTIPLE
            self._weight = functional.pad(rounded, (0, self._surplus))

    holds_rows = True
    """`rows` returns the rounded weight."""

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the rounded weight, (ids, in) float32."""
        if self.panels is not None:
            return self.panels.rows(ids)
        assert self._weight is not None
        return self._weight[ids, : self.shape[1]].float() * self._scales[ids, None].float()

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in), rounded to bf16. Returns (tokens, out) of the same dtype."""
        if self._weight is None:
            assert self.panels is not None
            out = self.panels(x)
        else:
            padded = functional.pad(x.bfloat16(), (0, self._surplus)) if self._surplus else x.bfloat16()
            out = torch._weight_int8pack_mm(padded, self._weight, self._scales)
        return (out if self.bias is None else out + self.bias).to(x.dtype)
