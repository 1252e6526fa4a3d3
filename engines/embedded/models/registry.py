"""Loads a model folder: its class and its number format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from engines.embedded.models.checkpoint import Checkpoint
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.linears import CPU, Linears, PlainLinears
from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan

if TYPE_CHECKING:
    from engines.layers.native.decoder import NativeDecoder


class Model(Protocol):
    """What the runner needs of a decoder."""

    config: ModelConfig
    dtype: torch.dtype
    """Of weights, of keys and values, and in which prompts are computed."""
    generation_dtype: torch.dtype
    """In which generated tokens are computed; float32 where that is no slower: see `Linear`."""
    device: torch.device
    embedding: Tensor
    """(vocabulary, hidden)"""
    native: NativeDecoder | None
    """What computes generated tokens where our own kernels can."""

    def hidden(self, ids: Tensor, positions: Tensor, pages: Tensor, plan: AttentionPlan) -> Tensor:
        """Final states of a flat batch."""
        ...

    def hidden_and_outputs(
        self,
        ids: Tensor,
        positions: Tensor,
        pages: Tensor,
        plan: AttentionPlan,
        layers: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        mirror: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, and what some layers gave out."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, float32."""
        ...


def load_model(
    folder: Path, dtype: str, linears: Callable[[torch.dtype], Linears] | None = None, device: torch.device = CPU
) -> Model:
    """Load a model folder. dtype: `auto`, `float32` or `bfloat16`. linears: what it is built of, given its number
    format; None: plain layers.

    Raises ConfigError naming an unknown architecture, a missing tensor, one too many, a shape that does not fit or a
    broken file.
    """
    config = ModelConfig.read(folder)
    checkpoint = Checkpoint(folder)
    own = _dtype(config, dtype, device)
    made = PlainLinears(own, device) if linears is None else linears(own)
    model = Llama(config, checkpoint, own, made, device)
    checkpoint.require_all_taken()
    return model


def _dtype(config: ModelConfig, wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "float32":
        return torch.float32
    if wanted == "bfloat16":
        return torch.bfloat16
    # without the instructions bf16 is emulated, several times slower than float32
    native = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native and config.dtype == "bfloat16" else torch.float32
