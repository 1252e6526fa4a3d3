"""The supported decoders, as differences from Llama. The planner and `up` also read them, without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec


class Family(msgspec.Struct, frozen=True):
    """One `architectures` entry of config.json. None means that config.json decides."""

    qkv_bias: bool | None = None
    """Query, key and value projections have a bias; None for `attention_bias`."""
    output_bias: bool | None = None
    """The projection after attention has a bias; None for `attention_bias`."""
    mlp_bias: bool | None = None
    """The MLP projections have a bias; None for `mlp_bias`."""
    qk_norm: bool = False
    """Queries and keys are normalised per head before they are rotated."""
    head_dim: int | None = None
    """Head size if `head_dim` is absent; None for hidden size / heads."""
    window_by_default: bool | None = True
    """Whether `sliding_window` applies if `use_sliding_window` is absent; None if the family has no windows."""
    headless: bool = False
    """The checkpoint has the decoder alone, like models for embeddings: it has no head, and no `model.` before the
    tensors' names."""
    fused: bool = False
    """The checkpoint has query, key and value projections as one tensor, and gate and up projections as another."""
    activation: Literal["silu", "gelu_pytorch_tanh"] = "silu"
    """Activation of the gate."""
    unit_offset: bool = False
    """Norms multiply by 1 + weight."""
    outer_norms: bool = False
    """The outputs of attention and of the MLP are also normalised, before they are added."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the root of the hidden size."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Fields that config.json may leave out."""


_DECODERS = {
    "Llama": Family(window_by_default=None),
    "Mistral": Family(qkv_bias=False, output_bias=False, mlp_bias=False),
    "Qwen2": Family(qkv_bias=True, output_bias=False, mlp_bias=False, window_by_default=False),
    "Qwen3": Family(mlp_bias=False, qk_norm=True, head_dim=128, window_by_default=False),
    "Phi3": Family(
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        fused=True,
        defaults=MappingProxyType({"original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}),
    ),
}
_GEMMA3 = Family(
    mlp_bias=False,
    qk_norm=True,
    activation="gelu_pytorch_tanh",
    unit_offset=True,
    outer_norms=True,
    scaled_embedding=True,
    # config.json of the larger models has little more than the sizes that differ from these
    defaults=MappingProxyType(
        {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        }
    ),
)
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **{f"{name}ForCausalLM": family for name, family in _DECODERS.items()},
        **{f"{name}Model": msgspec.structs.replace(family, headless=True) for name, family in _DECODERS.items()},
        "Gemma3ForCausalLM": _GEMMA3,
        "Gemma3ForConditionalGeneration": _GEMMA3,
    }
)
TEXT = "text_config"
"""The decoder's fields in the config.json of a model that also sees images."""


def decoder_fields(raw: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The fields of config.json that describe the decoder, with the family's defaults."""
    text = raw.get(TEXT)
    return {**family.defaults, **raw, **(text if isinstance(text, dict) else {}), "architectures": raw["architectures"]}
