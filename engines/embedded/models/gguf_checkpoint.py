"""Reads tensors from a GGUF file by their names in a Hugging Face folder, one at a time."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.models.checkpoint import Weights
from engines.embedded.models.config import ModelConfig
from engines.gguf.file import GgufFile, TensorPlace
from engines.gguf.model_config import EMBEDDING, HEAD

_OUTER = {"model.embed_tokens": EMBEDDING, "model.norm": "output_norm.weight", "lm_head": HEAD}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
INTERLEAVED = "llama"
"""The architecture whose query and key rows llama.cpp stores in the order of its rotation, with the two numbers of a
pair adjacent. Other architectures have the order of Hugging Face's folders."""


class GgufCheckpoint(Weights):
    """Like `Checkpoint`: every tensor taken must exist, with the shape that the model's config implies."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        """Raises ConfigError for an incomplete file, and if the package `gguf` is missing."""
        self._path = path
        self._file = GgufFile.read(path)
        self._library = _library(path)
        self._taken: set[str] = set()
        self._heads: dict[str, int] = {}
        if self._file.text("general.architecture") == INTERLEAVED:
            self._heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.read(name, shape).to(dtype)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor in float32. No copy of the file stays in memory."""
        stored = _stored_name(name)
        place = self._file.tensors.get(stored)
        if place is None:
            raise ConfigError(f"{self._path}: the tensor {stored} is missing; the model is incomplete")
        if place.shape != shape:
            raise ConfigError(f"{self._path}: {stored} has shape {place.shape}; the head of the file implies {shape}")
        self._taken.add(stored)
        numbers = self._numbers(place)
        kind = stored.split(".")[-2]
        if kind in self._heads:
            numbers = _halves(numbers, self._heads[kind])
        return torch.from_numpy(np.ascontiguousarray(numbers))

    def require_all_taken(self) -> None:
        left = sorted(self._file.tensors.keys() - self._taken)
        if left:
            raise ConfigError(
                f"{self._path}: the tensor {left[0]} ({len(left)} such) is not part of a supported model of this "
                "architecture"
            )

    def _numbers(self, place: TensorPlace) -> np.ndarray:
        width = place.shape[-1] // place.made.elements * place.made.size_bytes
        try:
            with self._path.open("rb") as file:
                file.seek(place.start)
                stored = np.fromfile(file, np.uint8, place.size_bytes)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
        if stored.size != place.size_bytes:
            raise ConfigError(f"{self._path}: not a complete GGUF file; fetch it again")
        library = self._library
        kind = library.GGMLQuantizationType[place.made.name]
        numbers: np.ndarray = library.quants.dequantize(stored.reshape(*place.shape[:-1], width), kind)
        if not np.isfinite(numbers.sum(dtype=np.float64)):
            raise ConfigError(f"{self._path}: a tensor holds numbers that are not finite; fetch the file again")
        return numbers.reshape(place.shape)


def _stored_name(name: str) -> str:
    found = _LAYER.fullmatch(name)
    if found is None:
        return _OUTER[name.rpartition(".")[0]]
    layer, part, kind = found.groups()
    return f"blk.{layer}.{_INNER[part]}.{kind}"


def _halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder each head's rows so that the first numbers of all pairs are in one half and the second in the other."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _library(path: Path) -> ModuleType:
    try:
        # imported here, because the import takes a fifth of a second and other models do not need it
        import gguf
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: a GGUF file needs the package {error.name}; install slipstream[engine]") from None
    return gguf
