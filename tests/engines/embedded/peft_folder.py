"""Random adapters in PEFT's format, and the models that they make when they are merged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

PREFIX = "base_model.model."
SETTINGS: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "bias": "none",
    "use_rslora": False,
    "target_modules": ["q_proj"],
    "task_type": "CAUSAL_LM",
}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapter_weights(base: dict[str, Tensor], rank: int, seed: int, projections: tuple[str, ...]) -> dict[str, Tensor]:
    """base: the model's tensors by name. Large enough to change what is generated."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, weight in base.items():
        if weight.dim() == 2 and name.split(".")[-2] in projections:
            out, inputs = weight.shape
            module = PREFIX + name.removesuffix(".weight")
            weights[f"{module}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) * 0.2
            weights[f"{module}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * 0.2
    return weights


def write_adapter(
    folder: Path,
    model: Path,
    *,
    seed: int = 0,
    projections: tuple[str, ...] = PROJECTIONS,
    weights: dict[str, Tensor] | None = None,
    **settings: Any,
) -> Path:
    """An adapter of a model folder; weights: instead of random ones."""
    config = {**SETTINGS, "target_modules": list(projections), **settings}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if weights is None:
        weights = adapter_weights(load_file(model / "model.safetensors"), config["r"], seed, projections)
    save_file(weights, str(folder / "adapter_model.safetensors"))
    return folder


def merge(model: Path, adapter: Path, folder: Path) -> Path:
    """The model with W + scale * B A in the place of W."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    rank = config["r"]
    scale = config["lora_alpha"] / (math.sqrt(rank) if config["use_rslora"] else rank)
    weights, parts = load_file(model / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name in weights:
        module = PREFIX + name.removesuffix(".weight")
        if f"{module}.lora_A.weight" in parts:
            update = parts[f"{module}.lora_B.weight"].float() @ parts[f"{module}.lora_A.weight"].float()
            weights[name] = (weights[name].float() + scale * update).to(weights[name].dtype)
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.is_file() and file.name != "model.safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    save_file(weights, str(folder / "model.safetensors"))
    return folder
