"""Writes and reads a head in the one layout that SGLang, TensorRT-LLM and vLLM all accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from contracts.errors import ConfigError
from speculative.eagle.config import ARCHITECTURE, VOCABULARY_MAPS, HeadConfig
from speculative.eagle.head import EagleHead


def save(head: EagleHead, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write config.json and model.safetensors. d2t and t2d keep their own types; if the head can draft every
    token of the target, the file has neither."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = msgspec.to_builtins(head.config)
    layers = shape.pop("eagle_aux_hidden_state_layer_ids")
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        **shape,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
        # SGLang reads this field; its k is the output of layer k
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers},
        # vLLM reads this field first; its k is the input of layer k
        "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in layers],
    }
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=1))
    tensors = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous().cpu()
        for name, tensor in head.state_dict().items()
        # vLLM expects a map only for a smaller vocabulary, and refuses any other
        if name not in VOCABULARY_MAPS or not head.config.guesses_all
    }
    save_file(tensors, str(folder / "model.safetensors"))


def token_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Bytes that a head keeps per token of a sequence: its keys and values. Raises ConfigError like `load`."""
    config = _read_config(folder)
    return 2 * config.num_key_value_heads * config.head_dim * dtype.itemsize


def load(folder: Path, dtype: torch.dtype = torch.float32) -> EagleHead:
    """Read a head. Raises ConfigError with the file and the missing, unknown or misshapen tensor."""
    config = _read_config(folder)
    head = EagleHead(config)
    tensors = _read_tensors(folder / "model.safetensors")
    state = head.state_dict()
    if config.guesses_all:
        tensors = {name: state[name] for name in VOCABULARY_MAPS} | tensors
    expected = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for name, shape in expected.items():
        # SGLang would silently leave a missing tensor random and skip an unknown one
        if name not in tensors:
            raise ConfigError(f"{folder / 'model.safetensors'}: {name} is missing")
        if tuple(tensors[name].shape) != shape:
            raise ConfigError(f"{folder / 'model.safetensors'}: {name} is {tuple(tensors[name].shape)}, not {shape}")
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise ConfigError(f"{folder / 'model.safetensors'}: unknown tensors: {', '.join(unknown)}")
    head.load_state_dict(tensors)
    return head.to(dtype).eval()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(str(path))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}; give the folder of a whole head"
        ) from None
    except SafetensorError as error:
        raise ConfigError(f"{path}: not a whole safetensors file: {error}; write or fetch it again") from None


def _read_config(folder: Path) -> HeadConfig:
    path = folder / "config.json"
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        own = raw.get("eagle_config")
        layers = own.get("eagle_aux_hidden_state_layer_ids") if isinstance(own, dict) else None
        config = msgspec.convert({**raw, "eagle_aux_hidden_state_layer_ids": layers}, HeadConfig)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:  # ValidationError is one
        raise ConfigError(f"{path}: {error}") from None
    if raw.get("architectures") != [ARCHITECTURE]:
        raise ConfigError(f"{path}: architectures: {raw.get('architectures')} is not [{ARCHITECTURE!r}]")
    return config
