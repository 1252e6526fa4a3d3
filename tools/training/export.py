"""Reads and writes models as Hugging Face folders: config.json, bfloat16 model.safetensors, the tokenizer's files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file

from contracts.errors import ConfigError
from tools.training.model import Llama, Shape

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def load(folder: Path, **changes: Any) -> Llama:
    """The model of a folder, in float32, with changes to its shape that no weight depends on (rope_theta,
    max_position_embeddings). Raises ConfigError, naming the file, if it is not a plain Llama with tied embeddings."""
    path = folder / "config.json"
    try:
        raw = msgspec.json.decode(path.read_bytes())
        shape = msgspec.convert({**raw, **changes}, Shape)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    if raw.get("architectures") != ["LlamaForCausalLM"] or not raw.get("tie_word_embeddings"):
        raise ConfigError(f"{path}: only a LlamaForCausalLM with tied word embeddings can be trained on")
    model = Llama(shape)
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    return model


def save(model: Llama, folder: Path, tokenizer: Path, end_ids: list[int]) -> None:
    """Write a folder that engines.embedded, transformers, SGLang and vLLM load.

    tokenizer: a folder whose tokenizer files are copied; end_ids: tokens that end a generation, the tokenizer's own
    end token first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = msgspec.to_builtins(model.shape)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **shape,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": end_ids[0],
        "attention_bias": False,
        "mlp_bias": False,
    }
    generation = {"bos_token_id": 0, "eos_token_id": end_ids, "do_sample": False}
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", generation)
    tensors = {name: tensor.to(torch.bfloat16).contiguous().cpu() for name, tensor in model.state_dict().items()}
    path = folder / "model.safetensors"
    save_file(tensors, str(path), metadata={"format": "pt"})
    path.chmod(0o644)  # the library makes it readable only to its owner
    for name in TOKENIZER_FILES:
        source = tokenizer / name
        if source.exists() and source.resolve() != (folder / name).resolve():
            shutil.copyfile(source, folder / name)
    settings_path = folder / "tokenizer_config.json"
    settings = msgspec.json.decode(settings_path.read_bytes())
    settings["model_max_length"] = model.shape.max_position_embeddings
    _write(settings_path, settings)


def from_checkpoint(path: Path) -> tuple[Llama, int]:
    """The weights of a trainer's checkpoint, and the number of tokens that the run has read."""
    state = torch.load(path, map_location="cpu")
    model = Llama(msgspec.convert(state["shape"], Shape))
    model.load_state_dict(state["model"])
    return model, state["tokens"]


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
