"""Loads a model folder: its class and its number format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engines.embedded.models.checkpoint import Checkpoint
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.linears import Linears, PlainLinears
from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan


class Model(Protocol):
    """What the runner needs of a decoder."""

    config: ModelConfig
    dtype: torch.dtype
    embedding: Tensor
    """(vocabulary, hidden)"""

    def hidden(self, ids: Tensor, positions: Tensor, pages: Tensor, plan: AttentionPlan) -> Tensor:
        """Final states of a flat batch."""
        ...

    def hidden_and_outputs(
        self, ids: Tensor, positions: Tensor, pages: Tensor, plan: AttentionPlan, layers: tuple[int, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, and what some layers gave out."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, float32."""
        ...


def load_model(folder: Path, dtype: str, linears: Callable[[torch.dtype], Linears] = PlainLinears) -> Model:
    """Load a model folder. dtype: `auto`, `float32` or `bfloat16`. linears: what it is built of, given its number
    format.

    Raises ConfigError naming an unknown architecture, a missing tensor, one too many, a shape that does not fit or a
    broken file.
    """
    config = ModelConfig.read(folder)
    checkpoint = Checkpoint(folder)
    own = _dtype(config, dtype)
    model = Llama(config, checkpoint, own, linears(own))
    checkpoint.require_all_taken()
    return model


def _dtype(config: ModelConfig, wanted: str) -> torch.dtype:
    if wanted == "float32":
        return torch.float32
    if wanted == "bfloat16":
        return torch.bfloat16
    # without the instructions bf16 is emulated, several times slower than float32
    native = torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native and config.dtype == "bfloat16" else torch.float32
