"""Reads the number format of a model's weights from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError
from engines.performance.precision import Precision

MODELOPT = "modelopt"
FP8 = "fp8"
PLAIN = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """The number format of a folder's weights."""

    precision: Precision
    toolchain: str
    """The toolchain that wrote it: `modelopt`, `compressed-tensors` or `fp8`; empty if the weights are not rounded."""
    kv_scales: bool
    """Whether it was also calibrated for keys and values."""


class _ModelOpt(msgspec.Struct, frozen=True):
    quant_algo: str | None = None
    kv_cache_quant_algo: str | None = None


class _ModelOptFile(msgspec.Struct, frozen=True):
    quantization: _ModelOpt = _ModelOpt()


class _Config(msgspec.Struct, frozen=True):
    torch_dtype: str = ""
    dtype: str = ""
    quantization_config: dict[str, Any] | None = None


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """None if the folder is not on this machine. Raises ConfigError for a number format that no dialect launches."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    modelopt = folder / "hf_quant_config.json"
    try:
        if modelopt.is_file():
            written = msgspec.json.decode(modelopt.read_bytes(), type=_ModelOptFile).quantization
            return Checkpoint(_named(written.quant_algo or "", modelopt), MODELOPT, bool(written.kv_cache_quant_algo))
        config = msgspec.json.decode(file.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{folder}: cannot be read: {error}", param="model") from error
    rounded = config.quantization_config
    if rounded is None:
        return Checkpoint(Precision.BF16, PLAIN, False)
    method = str(rounded.get("quant_method", ""))
    number_format = str(rounded.get("quant_algo") or rounded.get("format") or method)
    return Checkpoint(_named(number_format, file), method, bool(rounded.get("kv_cache_scheme")))


def _named(number_format: str, file: Path) -> Precision:
    known = {
        "fp8": Precision.FP8,
        "float-quantized": Precision.FP8,
        "nvfp4": Precision.NVFP4,
        "nvfp4-pack-quantized": Precision.NVFP4,
    }
    if number_format.lower() not in known:
        raise ConfigError(
            f"{file}: weights are kept as {number_format!r}, which is not modelled; known: {', '.join(known)}",
            param="model",
        )
    return known[number_format.lower()]
