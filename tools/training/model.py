"""The Llama that is trained here: plain torch with gradients and the parameter names of Hugging Face checkpoints.

engines.embedded computes the same without gradients, from a paged cache; a test compares the two on an export.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tools.training.attention import attend
from tools.training.pointwise import gated, scaled_to_one

LONG = 2048
"""Windows of more tokens keep only the input of each layer and recompute the layer in the backward pass: the attention
weights of 8,192 tokens would take 0.5 GB per layer."""


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
    """Maps token ids to hidden states and scores."""

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
        """`forward`, and the outputs of the wanted layers (from 0, ascending), (batch, tokens, hidden) each."""
        x = functional.embedding(ids, self.embedding)
        cos, sin = rotation(self.shape, ids.shape[1], x.device)
        layers = self.model["layers"]
        assert isinstance(layers, nn.ModuleList)
        outputs: list[Tensor] = []
        for index, layer in enumerate(layers):
            if ids.shape[1] > LONG and torch.is_grad_enabled():
                x = checkpoint(layer.forward, x, cos, sin, use_reentrant=False)  # not compiled: rare
            else:
                x = layer(x, cos, sin)
            if index in wanted:
                outputs.append(x)
        return self.model["norm"](x), outputs

    def compile_layers(self) -> None:
        """From now on run each layer through torch.compile, for windows of up to `LONG` tokens."""
        layers = self.model["layers"]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers:
            layer.compile(dynamic=False)

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits, (..., vocab)."""
        return functional.linear(hidden, self.embedding)

    @property
    def embedding(self) -> Tensor:
        """The table of input and output, (vocab, hidden)."""
        table = self.model["embed_tokens"].weight
        assert isinstance(table, Tensor)
        return table

    def weight(self, name: str) -> Tensor:
        """A tensor by its name in Hugging Face checkpoints."""
        return self.embedding if name == "lm_head.weight" else self.get_parameter(name)

    def initialise(self, generator: torch.Generator) -> None:
        """Set random weights: normal with standard deviation 0.02 for the table and 1/sqrt(inputs) for matrices, but
        zero for those that write to the residual stream."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.ones_(parameter)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)
            else:
                scale = 0.02 if "embed" in name else parameter.shape[1] ** -0.5
                nn.init.normal_(parameter, std=scale, generator=generator)


class Norm(nn.Module):
    """RMSNorm. Under autocast, its output has the narrow type that its users need."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        return scaled_to_one(x, self.weight, self._eps).to(narrow)


class Layer(nn.Module):
    """Attention and MLP, each added to the residual stream."""

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
        gate_and_up = functional.linear(h, rows(self.mlp, "gate_proj", "up_proj"))
        out: Tensor = x + self.mlp["down_proj"](gated(gate_and_up))
        return out

    def _attend(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        shape = self._shape
        batch, tokens, _ = h.shape
        projected = functional.linear(h, rows(self.self_attn, "q_proj", "k_proj", "v_proj"))
        heads = projected.view(batch, tokens, -1, shape.head_dim).transpose(1, 2)  # (batch, heads, tokens, dim)
        turning = shape.num_attention_heads + shape.num_key_value_heads
        turned = rotate(heads[:, :turning], cos, sin)
        queries = shape.num_attention_heads
        attended = attend(turned[:, :queries], turned[:, queries:], heads[:, turning:])
        out: Tensor = self.self_attn["o_proj"](attended.transpose(1, 2).flatten(-2))
        return out


def rows(parts: nn.ModuleDict, *names: str) -> Tensor:
    """The weights of several linears with the same input as one, for one matrix product instead of several."""
    return torch.cat([parts.get_parameter(f"{name}.weight") for name in names])


def rotation(shape: Shape, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine by position, (tokens, head_dim / 2) each, float32."""
    half = shape.head_dim // 2
    frequencies = 1.0 / shape.rope_theta ** (torch.arange(half, device=device) / half)
    angles = torch.arange(tokens, device=device)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions, with halves paired as in Llama checkpoints."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
