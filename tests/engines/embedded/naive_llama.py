"""The Llama forward pass written for reading: no cache, no batch, no fused matrices; float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def logits(config: dict[str, Any], weights: dict[str, Tensor], ids: list[int]) -> Tensor:
    """(tokens, vocabulary) for one sequence."""
    heads, kv_heads, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    count = len(ids)
    x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
    for index in range(config["num_hidden_layers"]):

        def weight(name: str, index: int = index) -> Tensor:
            return weights[f"model.layers.{index}.{name}.weight"]

        h = norm(x, weight("input_layernorm"), config["rms_norm_eps"])
        q = rotate((h @ weight("self_attn.q_proj").T).view(count, heads, head), config["rope_theta"])
        k = rotate((h @ weight("self_attn.k_proj").T).view(count, kv_heads, head), config["rope_theta"])
        v = (h @ weight("self_attn.v_proj").T).view(count, kv_heads, head)
        rows = []
        for at in range(count):
            outputs = []
            for number in range(heads):
                kv_head = number // (heads // kv_heads)
                scores = k[: at + 1, kv_head] @ q[at, number] / head**0.5
                outputs.append(torch.softmax(scores, 0) @ v[: at + 1, kv_head])
            rows.append(torch.cat(outputs))
        x = x + torch.stack(rows) @ weight("self_attn.o_proj").T
        h = norm(x, weight("post_attention_layernorm"), config["rms_norm_eps"])
        gate = torch.nn.functional.silu(h @ weight("mlp.gate_proj").T)
        x = x + (gate * (h @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
    x = norm(x, weights["model.norm.weight"], config["rms_norm_eps"])
    return x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * weight


def rotate(x: Tensor, theta: float) -> Tensor:
    half = x.shape[-1] // 2
    out = torch.empty_like(x)
    for position in range(x.shape[0]):
        for i in range(half):
            angle = torch.tensor(position / theta ** (2 * i / x.shape[-1]))
            a, b = x[position, :, i], x[position, :, i + half]
            out[position, :, i] = a * angle.cos() - b * angle.sin()
            out[position, :, i + half] = b * angle.cos() + a * angle.sin()
    return out


def greedy(config: dict[str, Any], weights: dict[str, Tensor], prompt: list[int], count: int) -> list[int]:
    """The likeliest continuation, everything computed anew for each token."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits(config, weights, ids)[-1].argmax()))
    return ids[len(prompt) :]
