"""The supported decoders of the Llama family, and their differences from Llama."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class Family(msgspec.Struct, frozen=True):
    """One `architectures` entry of config.json. None means that config.json decides."""

    qkv_bias: bool | None = None
    """Query, key and value projections have a bias; None: by `attention_bias`."""
    output_bias: bool | None = None
    """The projection after attention has a bias; None: by `attention_bias`."""
    mlp_bias: bool | None = None
    """The MLP projections have a bias; None: by `mlp_bias`."""
    qk_norm: bool = False
    """Queries and keys are normalised per head before they are rotated."""
    head_dim: int | None = None
    """Head size when `head_dim` is absent; None: hidden size / heads."""
    window_by_default: bool = True
    """`sliding_window` counts when `use_sliding_window` is absent."""
    headless: bool = False
    """The decoder alone, as models for embeddings are saved: without a head, and without `model.` before its tensors'
    names."""


_DECODERS = {
    "Llama": Family(),
    "Mistral": Family(qkv_bias=False, output_bias=False, mlp_bias=False),
    "Qwen2": Family(qkv_bias=True, output_bias=False, mlp_bias=False, window_by_default=False),
    "Qwen3": Family(mlp_bias=False, qk_norm=True, head_dim=128, window_by_default=False),
}
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **{f"{name}ForCausalLM": family for name, family in _DECODERS.items()},
        **{f"{name}Model": msgspec.structs.replace(family, headless=True) for name, family in _DECODERS.items()},
    }
)
