"""What makes a model's linear layers, so that they can be plain, rounded or watched.

Names: `layers.<number>.<group>` with the groups qkv, output, gate_up and down, and `head`. What engines fuse is one
group here, and has one scale where scales are per tensor.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engines.layers.linear import Linear, Projection

HEAD = "head"


class Linears(Protocol):
    """Makes the linear layers of one model."""

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """weight: (out, in), and bias: (out,), in the checkpoint's own precision or float32."""
        ...


class PlainLinears:
    """No quantization."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """See `Linears`."""
        return Linear(weight.to(self._dtype), None if bias is None else bias.to(self._dtype))
