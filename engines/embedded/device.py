"""Chooses the device of the model."""

from __future__ import annotations

import msgspec
import torch

from contracts.errors import ConfigError
from engines.embedded.combinations import require_possible, with_quantization
from engines.embedded.config import EngineConfig
from engines.embedded.cores import physical_cores


def device_of(config: EngineConfig) -> torch.device:
    """The configured device. Raises ConfigError for a GPU that is absent or lacks a required feature."""
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise ConfigError(
            "engine.device: cuda is set, but torch finds no CUDA device; allowed: cpu, cuda, auto",
            param="engine.device",
        )
    device = torch.device("cuda" if config.device != "cpu" and available else "cpu")
    require_possible(config, on_gpu=device.type == "cuda")
    return device


def decided(config: EngineConfig) -> EngineConfig:
    """Return the settings with the value "auto" resolved in `threads` and `quantization`. Raises ConfigError for an
    unreadable model file."""
    if config.threads == "auto":
        config = msgspec.structs.replace(config, threads=physical_cores())
    return with_quantization(config, on_gpu=config.device != "cpu" and torch.cuda.is_available())
