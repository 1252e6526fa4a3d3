"""The Llama that is trained here: plain torch with gradients, parameters named as Hugging Face checkpoints name them.

engines.embedded serves the same arithmetic without gradients, from pages; a test compares the two on an export.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from training.attention import attend

LONG = 2048
"""Windows of more tokens keep only what enters each layer, and compute the layer again on the way back: the attention
weights of 8,192 tokens would take 0.5 GB a layer."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A model's dimensions, in the names of config.json. Input and output embedding are one table."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


class Llama(nn.Module):
    """Token ids to hidden states and scores."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(shape.vocab_size, shape.hidden_size),
                "layers": nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers)),
                "norm": Norm(shape.hidden_size, shape.rms_norm_eps),
            }
        )

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (batch, tokens). Returns hidden states after the last norm, (batch, tokens, hidden)."""
        return self.hidden_and_outputs(ids, ())[0]

    def hidden_and_outputs(self, ids: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        """`forward`, and what the wanted layers (from 0, ascending) gave out, (batch, tokens, hidden) each."""
        x = functional.embedding(ids, self.embedding)
        cos, sin = rotation(self.shape, ids.shape[1], x.device)
        layers = self.model["layers"]
        assert isinstance(layers, nn.ModuleList)
        outputs: list[Tensor] = []
        for index, layer in enumerate(layers):
            if ids.shape[1] > LONG and torch.is_grad_enabled():
                x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
            if index in wanted:
                outputs.append(x)
        return self.model["norm"](x), outputs

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits, (..., vocab)."""
        return functional.linear(hidden, self.embedding)

    @property
    def embedding(self) -> Tensor:
        """The table of both ends, (vocab, hidden)."""
        table = self.model["embed_tokens"].weight
        assert isinstance(table, Tensor)
        return table

    def initialise(self, generator: torch.Generator) -> None:
        """Random weights: normal, of standard deviation 0.02 for the table and 1/sqrt(inputs) for matrices, whose
        outputs into the residual stream begin at zero."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.ones_(parameter)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)
            else:
                scale = 0.02 if "embed" in name else parameter.shape[1] ** -0.5
                nn.init.normal_(parameter, std=scale, generator=generator)


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        scaled: Tensor = (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self._eps)) * self.weight
        return scaled.to(x.dtype)


class Layer(nn.Module):
    """Attention and MLP, each added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape
        hidden, width = shape.hidden_size, shape.num_attention_heads * shape.head_dim
        kv_width = shape.num_key_value_heads * shape.head_dim
        self.input_layernorm = Norm(hidden, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(hidden, shape.rms_norm_eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(hidden, width, bias=False),
                "k_proj": nn.Linear(hidden, kv_width, bias=False),
                "v_proj": nn.Linear(hidden, kv_width, bias=False),
                "o_proj": nn.Linear(width, hidden, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, shape.intermediate_size, bias=False),
                "up_proj": nn.Linear(hidden, shape.intermediate_size, bias=False),
                "down_proj": nn.Linear(shape.intermediate_size, hidden, bias=False),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._attend(self.input_layernorm(x), cos, sin)
        h = self.post_attention_layernorm(x)
        out: Tensor = x + self.mlp["down_proj"](functional.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))
        return out

    def _attend(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        def heads(name: str) -> Tensor:
            projected: Tensor = self.self_attn[name](h)
            batch, tokens, _ = projected.shape
            return projected.view(batch, tokens, -1, self._shape.head_dim).transpose(
                1, 2
            )  # (batch, heads, tokens, dim)

        attended = attend(rotate(heads("q_proj"), cos, sin), rotate(heads("k_proj"), cos, sin), heads("v_proj"))
        out: Tensor = self.self_attn["o_proj"](attended.transpose(1, 2).flatten(-2))
        return out


def rotation(shape: Shape, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine by position, (tokens, head_dim / 2) each, float32."""
    half = shape.head_dim // 2
    frequencies = 1.0 / shape.rope_theta ** (torch.arange(half, device=device) / half)
    angles = torch.arange(tokens, device=device)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, halves paired as Llama checkpoints pair them."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
