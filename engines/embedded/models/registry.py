"""Which class serves which `architectures` entry of config.json, and in which number format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.checkpoint import Checkpoint
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan


class Model(Protocol):
    """What the runner needs of a decoder."""

    config: ModelConfig
    dtype: torch.dtype

    def hidden(self, ids: Tensor, positions: Tensor, pages: Tensor, plan: AttentionPlan) -> Tensor:
        """Final states of a flat batch."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, float32."""
        ...


ARCHITECTURES: Mapping[str, Callable[[ModelConfig, Checkpoint, torch.dtype], Model]] = MappingProxyType(
    {"LlamaForCausalLM": Llama, "MistralForCausalLM": Llama}
)


def load_model(folder: Path, dtype: str) -> Model:
    """Load a model folder. dtype: `auto`, `float32` or `bfloat16`.

    Raises ConfigError naming an unknown architecture, a missing tensor, a shape that does not fit or a broken file.
    """
    config = ModelConfig.read(folder)
    build = ARCHITECTURES.get(config.architecture)
    if build is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ConfigError(
            f"{folder / 'config.json'}: architectures: {config.architecture} is not supported; supported: {known}"
        )
    return build(config, Checkpoint(folder), _dtype(config, dtype))


def _dtype(config: ModelConfig, wanted: str) -> torch.dtype:
    if wanted == "float32":
        return torch.float32
    if wanted == "bfloat16":
        return torch.bfloat16
    # without the instructions bf16 is emulated, several times slower than float32
    native = torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native and config.dtype == "bfloat16" else torch.float32
