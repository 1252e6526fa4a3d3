"""A linear layer whose weight is laid out once for the processor's matrix kernels."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from engines.layers.native.matmul import Panels
    from engines.layers.native.team import Team

MAX_WIDE_ELEMENTS = 2**23
"""Larger matrices get no second copy for float32 inputs, because every kernel is bound by reading them."""
LARGEST_FLOAT16 = 65504.0
AVX2_ROWS = 3
"""FBGEMM's AVX2 kernels sum the last one or two rows of some batches in another order than groups of three to six
rows. Batches of a multiple of three rows leave no such rest. The AVX-512 kernels have one order."""


class Projection(Protocol):
    """Any linear layer, rounded or not."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out) of the same dtype."""
        ...


class Linear:
    """y = x W^T + b for x: (tokens, in), W: (out, in).

    On a CPU that multiplies in bf16, a bf16 weight is packed at start, which is 1.3 to 1.6 times faster at small
    batches than packing it on every call. On other CPUs it is stored only in float16, like the copy of `wide`, because
    PyTorch's bf16 takes two to five times as long there.

    With `wide`, the layer also accepts float32 inputs and multiplies them in float32 by a second copy of the weight in
    float16, which represents all bf16 weights except those below 1e-7. It is faster than bf16 up to about 12 rows.

    With `native`, the only copy is `panels`, in the native kernels' layout. Inputs are rounded to bf16; products are
    summed in float32. In all cases a row has the same bits in any batch.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        wide: bool = False,
        native: bool = False,
        team: Team | None = None,
    ) -> None:
        """native: create `panels`, which needs numba; team: the threads that multiply by `panels`; None for one
        thread."""
        self.shape = tuple(weight.shape)
        self.bias = bias
        """Added to the product."""
        self._dtype = weight.dtype
        self._weight = weight.contiguous()
        self._packed: Tensor | None = None
        self._wide: Tensor | None = None
        self._wide_bias = None if bias is None else bias.float()
        self._multiple = 1 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else AVX2_ROWS
        self.panels: Panels | None = None
        """The weight in the native kernels' layout."""
        bfloat16 = weight.dtype is torch.bfloat16 and weight.device.type == "cpu"
        packs = bfloat16 and _packs_bfloat16()
        alone = bfloat16 and not packs and wide_is_fast(weight.device)
        if native:
            from engines.layers.native.matmul import Panels

            self.panels = Panels(weight, team)
            self._weight = torch.empty(0, dtype=weight.dtype)
            return
        small = weight.numel() <= MAX_WIDE_ELEMENTS
        if ((wide and small) or alone) and float(weight.abs().max()) <= LARGEST_FLOAT16:
            self._wide = _packed_float16(weight.float())
        if packs:
            # the batch size is a hint that changes nothing measurable between 1 and 512
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, 32)
            self._weight = self._packed
        elif alone and self._wide is not None:
            self._weight = torch.empty(0, dtype=weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (tokens, in). Returns (tokens, out)."""
        if self.panels is not None:
            out = self.panels(x)
            return (out if self._wide_bias is None else out + self._wide_bias).to(x.dtype)
        if self._packed is not None and x.dtype is self._dtype:
            return self._plain(x)
        if self._wide is not None:
            rows, single = len(x), x.float()
            if short := -rows % self._multiple:  # padding by zero rows would still copy
                single = functional.pad(single, (0, 0, 0, short))
            wide: Tensor = torch.ops.aten.fbgemm_linear_fp16_weight_fp32_activation(single, self._wide, self._wide_bias)
            return wide[:rows].to(x.dtype)
        return self._plain(x.to(self._dtype)).to(x.dtype)

    @property
    def holds_rows(self) -> bool:
        """Whether `rows` returns the weight, of which no other copy exists."""
        return self.panels is not None

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the weight in `panels`, (ids, in)."""
        assert self.panels is not None
        return self.panels.rows(ids)

    def _plain(self, x: Tensor) -> Tensor:
        if self._packed is None:
            return functional.linear(x, self._weight, self.bias)
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return packed


def _packs_bfloat16() -> bool:
    """Whether oneDNN multiplies in bf16 here. Without AVX-512 or `avx_ne_convert` it refuses to pack."""
    return torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def wide_is_fast(device: torch.device) -> bool:
    """Whether this processor has the kernels that `Linear` needs for float32 inputs with bf16 weights."""
    return device.type == "cpu" and "fbgemm" in torch.backends.quantized.supported_engines


def team_of(threads: int) -> Team | None:
    """The threads of the native kernels; None for the caller's thread alone."""
    if threads == 1:
        return None
    from engines.layers.native.team import Team

    return Team(threads)


def native_is_possible(device: torch.device) -> bool:
    """Whether the native kernels can be compiled here."""
    return device.type == "cpu" and sys.byteorder == "little" and importlib.util.find_spec("numba") is not None


def _packed_float16(weight: Tensor) -> Tensor:
    with warnings.catch_warnings():
        # both functions warn once that they are deprecated; their replacement takes twice as long for a row
        warnings.simplefilter("ignore")
        packed: Tensor = torch.fbgemm_pack_gemm_matrix_fp16(weight)
        torch.fbgemm_linear_fp16_weight_fp32_activation(torch.zeros(1, weight.shape[1]), packed, None)
    return packed
