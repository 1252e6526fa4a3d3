"""Creates a model's linear layers, which may be plain, rounded or observed.

Their names are `layers.<number>.<group>`, with the groups qkv, output, gate_up and down, and `head`. Projections that
engines fuse are one group here, and share one scale if scales are per tensor.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engines.layers.linear import Linear, Projection, native_is_possible, team_of, wide_is_fast

CPU = torch.device("cpu")
HEAD = "head"


class Linears(Protocol):
    """Creates the linear layers of one model."""

    wide: bool
    """Whether the layers also take float32 inputs, with better results than from rounded ones."""

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """Create one layer. weight: (out, in); bias: (out,); both in the checkpoint's own precision or float32."""
        ...


class PlainLinears:
    """Creates layers without quantization."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device = CPU, *, native: bool = True, threads: int = 1
    ) -> None:
        """native: create panels for the native kernels if they are available. threads: number of kernel threads."""
        self._dtype = dtype
        self._device = device
        narrow = dtype is torch.bfloat16
        self._native = native and narrow and native_is_possible(device)
        self._team = team_of(threads) if self._native else None
        self.wide = self._native or (narrow and wide_is_fast(device))

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        weight = weight.to(self._device, self._dtype)
        bias = None if bias is None else bias.to(self._device, self._dtype)
        return Linear(weight, bias, wide=self.wide, native=self._native, team=self._team)
