"""The linear layers of a decoder's block, each with the names of its projections in a checkpoint.

Weights and adapters have the same layout, so both use this module.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engines.embedded.models.config import ModelConfig
from engines.layers.rotary import side_by_side


class Part(NamedTuple):
    """One projection of the checkpoint."""

    name: str
    width: int
    """Number of outputs."""
    rotated: int = 0
    """Number of first outputs that are queries or keys."""


class Group(NamedTuple):
    """One linear layer, which computes the outputs of its parts."""

    name: str
    inputs: int
    parts: tuple[Part, ...]


def groups_of(config: ModelConfig) -> tuple[Group, Group, Group, Group]:
    """The groups of one layer: qkv, output, gate_up and down."""
    hidden, ff = config.hidden_size, config.intermediate_size
    q, kv = (heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
    attention: tuple[Part, ...] = (
        Part("self_attn.q_proj", q, q),
        Part("self_attn.k_proj", kv, kv),
        Part("self_attn.v_proj", kv),
    )
    mlp: tuple[Part, ...] = (Part("mlp.gate_proj", ff), Part("mlp.up_proj", ff))
    if config.fused:
        attention = (Part("self_attn.qkv_proj", q + 2 * kv, q + kv),)
        mlp = (Part("mlp.gate_up_proj", 2 * ff),)
    return (
        Group("qkv", hidden, attention),
        Group("output", q, (Part("self_attn.o_proj", hidden),)),
        Group("gate_up", hidden, mlp),
        Group("down", ff, (Part("mlp.down_proj", hidden),)),
    )


def in_pairs(rows: Tensor, part: Part, config: ModelConfig) -> Tensor:
    """The rows of a part's weight, (width, …), in the order in which the model rotates the outputs."""
    if not part.rotated:
        return rows
    reordered = side_by_side(rows[: part.rotated], config.head_dim, config.rotary_dim)
    return torch.cat((reordered, rows[part.rotated :]))
