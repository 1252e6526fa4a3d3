"""Loads a model folder or a GGUF file in the requested number format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from engines.embedded.models.checkpoint import Checkpoint, Weights
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.linears import CPU, Linears, PlainLinears
from engines.embedded.models.llama import Llama
from engines.gguf.file import is_gguf


def load_model(
    folder: Path,
    dtype: str,
    linears: Callable[[torch.dtype], Linears] | None = None,
    device: torch.device = CPU,
    context_tokens: int | None = None,
) -> Llama:
    """Load a model folder or a GGUF file. dtype: `auto`, `float32` or `bfloat16`. linears: returns the layers to use
    for a number format; None for plain layers. context_tokens: the longest context; None for the model's.

    Raises ConfigError that names an unknown architecture, a missing or unknown tensor, a wrong shape or a broken file.
    """
    config = ModelConfig.read(folder)
    if context_tokens is not None:  # the rotary table has a row per position
        longest = min(context_tokens, config.max_position_embeddings)
        config = msgspec.structs.replace(config, max_position_embeddings=longest)
    checkpoint = _weights(folder, config)
    number_format = _dtype(config, dtype, device)
    layers = PlainLinears(number_format, device) if linears is None else linears(number_format)
    model = Llama(config, checkpoint, number_format, layers, device)
    checkpoint.require_all_taken()
    return model


def _weights(folder: Path, config: ModelConfig) -> Weights:
    if not is_gguf(folder):
        return Checkpoint(folder, decoder_alone=True)
    from engines.embedded.models.gguf_checkpoint import GgufCheckpoint

    return GgufCheckpoint(folder, config)


def _dtype(config: ModelConfig, setting: str, device: torch.device) -> torch.dtype:
    if setting == "float32":
        return torch.float32
    if setting == "bfloat16":
        return torch.bfloat16
    # without these instructions, bf16 is emulated and several times slower than float32
    native = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native and config.dtype == "bfloat16" else torch.float32
