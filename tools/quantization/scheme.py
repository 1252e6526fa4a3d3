"""A rounding scheme: which parts of a model are rounded, and how."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

import msgspec
import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.linears import CPU
from engines.embedded.quantization.calibration import read_calibration
from engines.layers import int8, narrow_kv
from engines.layers.attention import Rounding
from engines.layers.fp8 import Activations, Fp8Linear, Weights, rounded, scale_of
from engines.layers.int8 import Int8Linear
from engines.layers.linear import Projection, native_is_possible

LINEARS = ("layers.*.qkv", "layers.*.output", "layers.*.gate_up", "layers.*.down")
HEAD, EMBEDDING, KV = "head", "embedding", "layers.*.kv"
Name = Literal["int8", "fp8"]
ROUNDED: dict[Name, tuple[str, ...]] = {"int8": (*LINEARS, HEAD), "fp8": LINEARS}
"""The parts that the engine rounds, by its setting `quantization`."""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """int8: weights in 255 steps of a size per row, activations in bfloat16, as the engine computes them. fp8: E4M3,
    simulated as the engine does. Keys and values: as the engine stores them with `kv.dtype` set to the scheme."""

    name: Name
    weights: Weights = "channel"
    """fp8 only: one scale for a layer's weights, or one per output channel."""
    activations: Activations = "token"
    """fp8 only: not rounded, one dynamic scale per token, or one per layer from a calibration."""
    calibration: str = ""
    """The file for `activations = "tensor"`."""
    also: tuple[str, ...] = ()
    """Rounded in addition to the engine's parts: `head`, `embedding`, `layers.*.kv`."""
    keep: tuple[str, ...] = ()
    """Exceptions, which are not rounded, such as `layers.3.down` or `layers.0.*`."""

    def rounds(self, part: str) -> bool:
        """Whether the scheme rounds a part."""
        return self.wants(part) and not _among(part, self.keep)

    def wants(self, part: str) -> bool:
        """Whether the scheme would round a part without `keep`."""
        return _among(part, (*ROUNDED[self.name], *self.also))


class Rounder:
    """Makes rounded parts according to a scheme."""

    def __init__(self, scheme: Scheme, *, native: bool = True) -> None:
        """native: use the native int8 kernels if they are available. Raises ConfigError if the calibration that static
        scales need is missing or cannot be read."""
        self._scheme = scheme
        self._native = native and native_is_possible(CPU)
        self._amax: dict[str, float] = {}
        if scheme.name == "fp8" and scheme.activations == "tensor":
            self._amax = read_calibration(scheme.calibration).amax

    def linear(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """Raises ConfigError if the calibration has no such layer."""
        scheme = self._scheme
        if scheme.name == "int8":
            return Int8Linear(weight.float(), bias, native=self._native)
        if scheme.activations == "tensor" and name not in self._amax:
            raise ConfigError(f"{scheme.calibration} has no layer {name}; calibrate this model", param="calibration")
        return Fp8Linear(weight.float(), bias, scheme.weights, scheme.activations, self._amax.get(name))

    def embedding(self, table: Tensor) -> Tensor:
        """(vocabulary, hidden), a scale per row."""
        if self._scheme.name == "int8":
            return int8_steps(table.float(), 1).to(table.dtype)
        scale = scale_of(table.float().abs().amax(1, keepdim=True))
        return (rounded(table.float(), scale) * scale).to(table.dtype)

    @property
    def keys_and_values(self) -> Rounding:
        """The rounding of keys and values."""
        return int8_keys_and_values if self._scheme.name == "int8" else fp8_keys_and_values

    def bytes(self, shape: tuple[int, int]) -> int:
        """Size of a rounded matrix and its float32 scales."""
        rows, columns = shape
        by_tensor = self._scheme.name == "fp8" and self._scheme.weights == "tensor"
        return rows * columns + 4 * (1 if by_tensor else rows)


def int8_steps(x: Tensor, *axes: int) -> Tensor:
    """x rounded to whole steps of amax / 127, where amax is the largest magnitude over `axes`; still in float32."""
    scale: Tensor = x.abs().amax(axes, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / int8.MAX
    return scale * (x / scale).round()


def int8_keys_and_values(heads: Tensor) -> Tensor:
    """heads: see `Rounding`."""
    return narrow_kv.decode(narrow_kv.encode(heads, narrow_kv.CODES["int8"]), torch.float32)


def fp8_keys_and_values(heads: Tensor) -> Tensor:
    """heads: see `Rounding`."""
    return narrow_kv.decode(narrow_kv.encode(heads, narrow_kv.CODES["fp8"]), torch.float32)


def _among(part: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in patterns)
