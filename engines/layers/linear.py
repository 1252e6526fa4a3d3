"""A linear layer whose weight is laid out once for the CPU's matrix kernels."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Projection(Protocol):
    """Any linear layer, rounded or not."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out) of the same dtype."""
        ...


class Linear:
    """y = x W^T + b for x: (tokens, in), W: (out, in).

    bf16 on a CPU: the weight is packed at start, which is 1.3 to 1.6 times faster at small batches than packing it on
    every call, and gives a row the same bits whatever else is in the batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.shape = tuple(weight.shape)
        self._bias = bias
        self._weight = weight.contiguous()
        self._packed: Tensor | None = None
        if weight.dtype is torch.bfloat16 and weight.device.type == "cpu" and torch._C._has_mkldnn:
            # the batch size is a hint that changes nothing measurable between 1 and 512
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, 32)
            self._weight = self._packed

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out)."""
        if self._packed is not None:
            packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
            return packed
        return functional.linear(x, self._weight, self._bias)
