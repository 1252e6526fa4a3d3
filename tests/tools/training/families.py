"""Small random models of other families than those made here, with weights that their checkpoints have and Llama's have
not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.engines.embedded.tiny import random_weights, write_model

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False},
}


def model_of(folder: Path, family: str, shape: dict[str, Any], scale: float = 1.0) -> Path:
    """A model folder of this family. scale: of the matrices of layers, less for wide ones."""
    config = {**shape, **FAMILIES[family]}
    weights = {
        name: tensor * scale if ".layers." in name and tensor.ndim == 2 else tensor
        for name, tensor in random_weights(config).items()
    }
    head = config["head_dim"]
    sizes = {"q": config["num_attention_heads"] * head, "k": config["num_key_value_heads"] * head}
    for layer in range(config["num_hidden_layers"]):
        attention = f"model.layers.{layer}.self_attn"
        if family == "qwen2":
            weights |= {
                f"{attention}.{name}_proj.bias": torch.full((size,), 0.1)
                for name, size in (*sizes.items(), ("v", sizes["k"]))
            }
        if family == "qwen3":
            weights |= {f"{attention}.{name}_norm.weight": torch.full((head,), 1.1) for name in "qk"}
    return write_model(folder, config, weights)
