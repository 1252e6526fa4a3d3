"""A model as the engine serves it, to train a draft head for: any folder of the Llama family that the engine loads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.checkpoint import Checkpoint
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.passes import states_of
from tools.training.model import Shape

CPU = torch.device("cpu")
MIN_LAYERS = 4
"""A head reads the outputs of three layers, none of them the last."""


class ServedTarget:
    """See `tools.training.head_trainer.Target`. It has no gradients."""

    def __init__(self, folder: Path, device: torch.device = CPU) -> None:
        """Raises ConfigError for a folder that the engine does not load or whose model is too shallow for a head."""
        config = ModelConfig.read(folder)
        if config.num_hidden_layers < MIN_LAYERS:
            raise ConfigError(
                f"{folder}: num_hidden_layers is {config.num_hidden_layers}; a draft head reads three hidden states "
                f"between layers, so {MIN_LAYERS} are needed",
                param="num_hidden_layers",
            )
        if config.fused or not config.is_plain:
            raise ConfigError(
                f"{folder}: draft heads are trained for Llama, Mistral, Qwen2 and Qwen3 without windows; this model "
                "computes otherwise, or its tensors have other names",
                param="architectures",
            )
        self._model = load_model(folder, "auto", device=device)
        self._checkpoint = Checkpoint(folder)
        self._tied = config.tie_word_embeddings
        # only the target scales positions: a head rotates by the plain base frequency
        self.shape = Shape(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_embeddings,
            rope_theta=config.rope_theta,
            rms_norm_eps=config.rms_norm_eps,
        )
        self.embedding = self._model.embedding.float()

    def hidden_and_outputs(self, ids: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        """ids: (1, tokens)."""
        # the engine's kernels do their own rounding
        with torch.autocast(self.embedding.device.type, enabled=False):
            hidden, outputs = states_of(self._model, [ids[0].tolist()], wanted)
        return hidden[None], [output[None].float() for output in outputs]

    def scores(self, hidden: Tensor) -> Tensor:
        """hidden: (1, tokens, hidden)."""
        with torch.autocast(self.embedding.device.type, enabled=False):
            return self._model.logits(hidden[0])[None]

    def weight(self, name: str) -> Tensor:
        """A tensor of the folder in float32, on the device."""
        if self._tied and name == "lm_head.weight":
            return self.embedding
        return self._checkpoint.stored(name).to(self.embedding.device).float()
