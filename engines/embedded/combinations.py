"""Settings of an engine that exclude each other; for the engine itself, and for whoever starts it, without torch."""

from __future__ import annotations

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig


def require_possible(config: EngineConfig, *, on_gpu: bool, trail: str = "engine") -> None:
    """Raise ConfigError for weights that cannot be kept so in this number format or on this device.

    trail: where the settings stand, for the message.
    """
    field = f"{trail}.quantization"
    if config.quantization == "int8" and config.dtype == "float32":
        raise ConfigError(
            f"{field}: int8 computes in bfloat16; {trail}.dtype must be auto or bfloat16, got float32", param=field
        )
    if on_gpu and config.quantization != "none":
        raise ConfigError(
            f"{field}: {config.quantization} computes on a CPU only; set {trail}.device = 'cpu' or none", param=field
        )
