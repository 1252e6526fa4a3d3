"""Checks for settings of an engine that exclude each other. It imports no torch, so that `up` can use it too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig
from engines.gguf.file import GgufFile, is_gguf
from engines.gguf.model_config import rounded_to_8_bits


def with_quantization(config: EngineConfig, *, on_gpu: bool) -> EngineConfig:
    """Return the settings with `quantization = "auto"` resolved. Raises ConfigError for an unreadable GGUF file."""
    if config.quantization != "auto":
        return config
    path, narrow = Path(config.model), False
    if is_gguf(path) and not on_gpu and config.dtype != "float32":
        narrow = rounded_to_8_bits(GgufFile.read(path))
    return msgspec.structs.replace(config, quantization="int8" if narrow else "none")


def require_possible(config: EngineConfig, *, on_gpu: bool, trail: str = "engine") -> None:
    """Raise ConfigError if this number format or this device does not support the configured storage of weights.

    trail: the path of the settings, for the message.
    """
    field = f"{trail}.quantization"
    if config.quantization == "int8" and config.dtype == "float32":
        raise ConfigError(
            f"{field}: int8 computes in bfloat16; {trail}.dtype must be auto or bfloat16, got float32", param=field
        )
    if on_gpu and config.quantization not in ("auto", "none"):
        raise ConfigError(
            f"{field}: {config.quantization} computes on a CPU only; set {trail}.device = 'cpu' or none", param=field
        )
