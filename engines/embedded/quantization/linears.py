"""Creates the linear layers that the settings select, with rounded weights or without."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.combinations import require_possible
from engines.embedded.config import EngineConfig, Fp8Config
from engines.embedded.models.linears import CPU, HEAD, Linears, PlainLinears
from engines.embedded.quantization.calibration import read_calibration
from engines.layers.fp8 import Fp8Linear
from engines.layers.int8 import Int8Linear
from engines.layers.linear import Projection, native_is_possible, team_of


class Int8Linears:
    """8-bit weights in all layers, including the head, which is the largest matrix of a small model."""

    def __init__(self, *, native: bool = False, threads: int = 1) -> None:
        """native: use the native kernels if they are available. threads: number of threads of the kernels."""
        self.wide = native and native_is_possible(CPU)
        self._team = team_of(threads) if self.wide else None

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        return Int8Linear(weight, bias, native=self.wide, team=self._team)


class Fp8Linears:
    """Simulated FP8 in all layers except the head and those in `keep`."""

    wide = False

    def __init__(self, config: Fp8Config, dtype: torch.dtype) -> None:
        """Raises ConfigError if the calibration for static activation scales cannot be read."""
        self._config = config
        self._plain = PlainLinears(dtype)
        self._amax: dict[str, float] = {}
        if config.activations == "tensor":
            if not config.calibration:
                raise ConfigError(
                    "engine.fp8.calibration: activations = 'tensor' needs the file that `slipstream tools quantization "
                    "calibrate` writes",
                    param="engine.fp8.calibration",
                )
            self._amax = read_calibration(config.calibration).amax

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Projection:
        """Create one layer; see `Linears`. Raises ConfigError if the calibration lacks the layer."""
        if name == HEAD or any(fnmatchcase(name, pattern) for pattern in self._config.keep):
            return self._plain.make(name, weight, bias)
        amax = self._amax.get(name)
        if self._config.activations == "tensor" and amax is None:
            raise ConfigError(
                f"engine.fp8.calibration: {self._config.calibration} has no layer {name}; calibrate this model",
                param="engine.fp8.calibration",
            )
        return Fp8Linear(weight.float(), bias, self._config.weights, self._config.activations, amax)


def linears_of(config: EngineConfig, dtype: torch.dtype, device: torch.device = CPU) -> Linears:
    """The linear layers that the settings select."""
    # only PyTorch's operations check branches; the native kernels store pages in another order and read no codes
    plain = config.speculation.shape == "chain" and config.kv.dtype == "auto"
    native = config.kernels == "auto" and plain
    threads = 1 if config.threads == "auto" else config.threads
    if config.quantization == "int8":
        return Int8Linears(native=native, threads=threads)
    if config.quantization == "fp8":
        return Fp8Linears(config.fp8, dtype)
    return PlainLinears(dtype, device, native=native, threads=threads)


def dtype_of(config: EngineConfig) -> str:
    """The number format of activations and of weights that are not rounded. Raises ConfigError for a format that 8-bit
    weights do not support."""
    require_possible(config, on_gpu=False)
    return "bfloat16" if config.quantization == "int8" else config.dtype
