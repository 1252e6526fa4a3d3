"""Translates a GGUF file's metadata to the fields of Hugging Face's config.json, which every reader of a model uses."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from contracts.errors import ConfigError
from engines.gguf.file import GgufFile

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
)
"""Architectures in files and their names in config.json. Files of Mistral's models name llama."""
EMBEDDING, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
SCALING = ("type", "factor", "original_context_length", "finetuned")
WIDE = frozenset({"F32"})
"""Formats with more precision than bfloat16."""


def config_of(path: Path) -> dict[str, Any]:
    """The fields of config.json. Raises ConfigError, with the cause, for a file that cannot be read or served."""
    file = GgufFile.read(path)
    name = file.name("general.architecture") or "none"
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        raise ConfigError(
            f"{path}: general.architecture is {name}, which is not supported; supported: {', '.join(ARCHITECTURES)}. "
            "llama.cpp's server may serve it, as a pool of driver openai",
            param="architectures",
        )
    return _Reader(file, name).config(architecture)


def number_format(file: GgufFile) -> str:
    """The number format that rounds the matrices little or not at all: `float32` or `bfloat16`."""
    matrices = (place for place in file.tensors.values() if len(place.shape) > 1)
    return "float32" if any(place.made.name in WIDE for place in matrices) else "bfloat16"


def rounded_to_8_bits(file: GgufFile) -> bool:
    """Whether all matrices are stored in 8 bits or fewer."""
    return all(place.made.elements > 1 for place in file.tensors.values() if len(place.shape) > 1)


class _Reader:
    def __init__(self, file: GgufFile, name: str) -> None:
        self._file = file
        self._name = name

    def config(self, architecture: str) -> dict[str, Any]:
        file = self._file
        embedding = file.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise ConfigError(f"{file.path}: no tensor {EMBEDDING} of two dimensions; the model is incomplete")
        if ROPE_FACTORS in file.tensors:
            raise ConfigError(f"{file.path}: {ROPE_FACTORS}: rotary scaling by factors is not supported")
        if self._number("expert_count", 0):
            raise ConfigError(f"{file.path}: {self._name}.expert_count: mixtures of experts are not supported")
        context = self._number("context_length")
        window = self._number("attention.sliding_window", context)
        if 0 < window < context:
            raise ConfigError(
                f"{file.path}: {self._name}.attention.sliding_window must be 0 or at least the context, {context:,}; "
                f"got {window:,}. The file does not say which layers have a window; a Hugging Face folder does"
            )
        heads = self._number("attention.head_count")
        head_dim = self._number("attention.key_length", self._number("embedding_length") // (heads or 1))
        for field in ("attention.value_length", "rope.dimension_count"):
            if self._number(field, head_dim) != head_dim:
                raise ConfigError(f"{file.path}: {self._name}.{field} must be {head_dim}, the size of a head")
        return {
            "architectures": [architecture],
            "hidden_size": self._number("embedding_length"),
            "intermediate_size": self._number("feed_forward_length"),
            "num_hidden_layers": self._number("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._number("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": embedding.shape[0],
            "max_position_embeddings": context,
            "rms_norm_eps": _shortest(self._real("attention.layer_norm_rms_epsilon", 1e-5)),
            "rope_theta": self._real("rope.freq_base", 10_000.0),
            "rope_scaling": self._scaling(),
            "tie_word_embeddings": HEAD not in file.tensors,
            "dtype": number_format(file),
        }

    def _scaling(self) -> dict[str, Any] | None:
        kind = self._file.name(f"{self._name}.rope.scaling.type") or "none"
        if kind == "none":
            return None
        if kind not in ("linear", "yarn"):
            raise ConfigError(
                f"{self._file.path}: {self._name}.rope.scaling.type is {kind}, which is not supported; supported: "
                "none, linear, yarn"
            )
        known = {f"{self._name}.rope.scaling.{name}" for name in SCALING}
        for name in self._file.names(f"{self._name}.rope.scaling."):
            if name not in known:
                raise ConfigError(f"{self._file.path}: {name} is not supported")
        scaling = {"rope_type": kind, "factor": self._real("rope.scaling.factor", 1.0)}
        if kind == "yarn":
            scaling["original_max_position_embeddings"] = self._number("rope.scaling.original_context_length")
        return scaling

    def _number(self, field: str, default: int | None = None) -> int:
        name = f"{self._name}.{field}"
        found: int | None = self._file.value(name, int, default)
        if found is None:
            raise ConfigError(f"{self._file.path}: {name} is missing; the model is incomplete")
        return found

    def _real(self, field: str, default: float) -> float:
        return float(self._file.value(f"{self._name}.{field}", (int, float), default))


def _shortest(value: float) -> float:
    """The shortest decimal of a float32: 1e-5 instead of 9.999999747378752e-06."""
    if not abs(value) < 1e38:  # `pack` raises for a value beyond float32
        return value
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value
