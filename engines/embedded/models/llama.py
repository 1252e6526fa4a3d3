"""The Llama decoder, with RMSNorm, rotary positions, grouped-query attention over pages and SwiGLU.

The other families differ from it in some fields of the config; see `families`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from engines.embedded.models.checkpoint import Weights
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.groups import Group, groups_of, in_pairs
from engines.embedded.models.linears import CPU, HEAD, Linears
from engines.embedded.models.rope import make_rotary
from engines.layers.attention import AttentionPlan, PagedAttention, Rounding
from engines.layers.int8 import Int8Linear
from engines.layers.linear import Linear, Projection
from engines.layers.norm import HeadNorm, RMSNorm
from engines.layers.rotary import Rotary, side_by_side

if TYPE_CHECKING:
    from engines.embedded.lora.adapted_rows import AdaptedRows
    from engines.layers.native.decoder import LayerWeights, NativeDecoder


class Memory(NamedTuple):
    """One layer's keys and values."""

    pages: Tensor
    mirror: Tensor | None


class Reach(NamedTuple):
    """The rotations and the attention plan of a step, for layers of one kind."""

    turns: Tensor
    plan: AttentionPlan


class LlamaLayer:
    """One block. To save calls, the query, key and value projections are one matrix, and so are gate and up."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Weights,
        index: int,
        dtype: torch.dtype,
        device: torch.device,
        linears: Linears,
    ) -> None:
        hidden, head_dim = config.hidden_size, config.head_dim
        self._index = index
        self._q_width = config.num_attention_heads * head_dim
        self._qk_heads = config.num_attention_heads + config.num_key_value_heads
        self._qk_width = self._qk_heads * head_dim
        self._head_dim = head_dim
        self._ff = config.intermediate_size
        self._gate = functional.silu if config.activation == "silu" else _gelu
        self._attention = PagedAttention(config.num_attention_heads, config.num_key_value_heads, head_dim)
        prefix = f"model.layers.{index}"

        def norm(name: str) -> RMSNorm:
            return RMSNorm(_norm_weight(config, checkpoint, f"{prefix}.{name}", hidden, dtype, device), epsilon)

        def linear(group: Group, bias: bool) -> Projection:
            def read(kind: str, *inputs: int) -> Tensor:
                return torch.cat(
                    [
                        in_pairs(checkpoint.read(f"{prefix}.{part.name}.{kind}", (part.width, *inputs)), part, config)
                        for part in group.parts
                    ]
                )

            name = f"layers.{index}.{group.name}"
            return linears.make(name, read("weight", group.inputs), read("bias") if bias else None)

        epsilon = config.rms_norm_eps
        qkv, output, gate_up, down = groups_of(config)
        self._input_norm = norm("input_layernorm")
        self._post_norm = norm("pre_feedforward_layernorm" if config.outer_norms else "post_attention_layernorm")
        self._outer_norms: tuple[RMSNorm, RMSNorm] | None = None
        """Norms of the outputs of attention and of the MLP."""
        if config.outer_norms:
            self._outer_norms = norm("post_attention_layernorm"), norm("post_feedforward_layernorm")
        self._qkv = linear(qkv, config.qkv_bias)
        self._qk_norm: HeadNorm | None = None
        if config.qk_norm:
            q, k = (
                side_by_side(
                    _norm_weight(config, checkpoint, f"{prefix}.self_attn.{name}_norm", head_dim, dtype, device),
                    head_dim,
                    config.rotary_dim,
                )
                for name in "qk"
            )
            rows = [q * config.query_scale] * config.num_attention_heads + [k] * config.num_key_value_heads
            self._qk_norm = HeadNorm(torch.stack(rows), epsilon)
        self._output = linear(output, config.output_bias)
        self._gate_up = linear(gate_up, config.mlp_bias)
        self._down = linear(down, config.mlp_bias)

    def keep_rounded(self, rounding: Rounding | None) -> None:
        """Round this layer's keys and values when they are stored; None to store them unchanged."""
        self._attention.rounding = rounding

    def native(self) -> LayerWeights | None:
        """The layer's weights for the native kernels; None if they do not support one of its parts."""
        parts = (self._qkv, self._output, self._gate_up, self._down)
        linears = [part for part in parts if isinstance(part, Linear | Int8Linear)]
        panels = [part.panels for part in linears if part.panels is not None]
        if len(panels) < len(parts) or any(part.bias is not None for part in linears[1:]):
            return None
        from engines.layers.native.decoder import LayerWeights

        qkv, output, gate_up, down = panels
        head_norm = None if self._qk_norm is None else self._qk_norm.weight
        norms = self._input_norm.weight, self._post_norm.weight, head_norm
        return LayerWeights(qkv, output, gate_up, down, *norms, linears[0].bias)

    def __call__(
        self,
        x: Tensor,
        rotary: Rotary,
        reach: Reach,
        memory: Memory,
        adapted: AdaptedRows | None = None,
    ) -> Tensor:
        """Run the block. x: (tokens, hidden), in the model's format or float32."""

        def project(group: str, projection: Projection, inputs: Tensor) -> Tensor:
            output = projection(inputs)
            return output if adapted is None else adapted.add_(output, inputs, self._index, group)

        qkv = project("qkv", self._qkv, self._input_norm(x))  # (tokens, q | k | v)
        rotated = qkv[:, : self._qk_width].view(-1, self._qk_heads, self._head_dim)
        if self._qk_norm is not None:
            self._qk_norm.apply_(rotated)
        rotary.rotate_(rotated, reach.turns)
        q, kv = qkv[:, : self._q_width], qkv[:, self._q_width :]
        added = project("output", self._output, self._attention(q, kv, memory.pages, reach.plan, memory.mirror))
        x = x + (added if self._outer_norms is None else self._outer_norms[0](added))
        gate_up = project("gate_up", self._gate_up, self._post_norm(x))  # (tokens, gate | up)
        gated = self._gate(gate_up[:, : self._ff]).mul_(gate_up[:, self._ff :])
        added = project("down", self._down, gated)
        return x + (added if self._outer_norms is None else self._outer_norms[1](added))


def _gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _norm_weight(
    config: ModelConfig, checkpoint: Weights, name: str, width: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    weight = checkpoint.read(f"{name}.weight", (width,))
    # do not round the sum to bfloat16, which has few digits near 1
    return (weight.float() + 1 if config.unit_offset else weight.to(dtype)).to(device)


class Llama:
    """A whole decoder: token ids in, logits out. It keeps no state between steps; the caller owns keys and values."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Weights,
        dtype: torch.dtype,
        linears: Linears,
        device: torch.device = CPU,
    ) -> None:
        """linears: creates the linear layers, rounded or not, on the same device.

        Raises ConfigError that names a tensor that is missing or has the wrong shape.
        """
        self.config = config
        self.dtype = dtype
        """Number format of weights, keys and values, and of prompt computation."""
        self.device = device
        self.generation_dtype = torch.float32 if linears.wide else dtype
        """Number format of generation; float32 if it is no slower (see `Linear`)."""
        table = (config.vocab_size, config.hidden_size)
        embedding = checkpoint.read("model.embed_tokens.weight", table)
        head = embedding if config.tie_word_embeddings else checkpoint.read("lm_head.weight", table)
        self._head = linears.make(HEAD, head, None)
        self._shared: Linear | Int8Linear | None = None
        """The head, if its rows are the embedding too, so that the largest matrix of a small model is stored once."""
        if config.tie_word_embeddings and isinstance(self._head, Linear | Int8Linear) and self._head.holds_rows:
            self._shared = self._head
        self._embedding = None if self._shared is not None else embedding.to(device, dtype)
        del embedding, head
        self._layers = [
            LlamaLayer(config, checkpoint, index, dtype, device, linears) for index in range(config.num_hidden_layers)
        ]
        norm = _norm_weight(config, checkpoint, "model.norm", config.hidden_size, dtype, device)
        self._norm = RMSNorm(norm, config.rms_norm_eps)
        # the factor is rounded like the embeddings, as in training
        self._embedding_scale = float(torch.tensor(config.embedding_scale, dtype=dtype))
        head_dim, positions = config.head_dim, config.max_position_embeddings
        self._rotary = make_rotary(head_dim, config.rope_theta, config.rope_scaling, positions, config.rotary_dim)
        self._rotary.to(device)
        self._local_rotary = self._rotary
        """Rotations of the windowed layers."""
        if config.local_rope_theta is not None:
            self._local_rotary = make_rotary(head_dim, config.local_rope_theta, None, positions, config.rotary_dim)
            self._local_rotary.to(device)
        self.native = self._native()
        """Computes generated tokens with the native kernels; None if they do not support the model."""

    @property
    def embedding(self) -> Tensor:
        """The table, (vocabulary, hidden), in `dtype`; a copy if only the head stores it."""
        if self._embedding is not None:
            return self._embedding
        return self._rows(torch.arange(self.config.vocab_size))

    @embedding.setter
    def embedding(self, table: Tensor) -> None:
        self._embedding = table

    def _rows(self, ids: Tensor) -> Tensor:
        if self._embedding is not None:
            return self._embedding.index_select(0, ids)
        assert self._shared is not None
        return self._shared.rows(ids).to(self.dtype)

    def keep_rounded(self, rounding: Rounding | None, layer: int | None = None) -> None:
        """Round keys and values when they are stored, in one layer or in all; None to stop.

        Raises ValueError if the native kernels compute the model, because they store keys and values unchanged.
        """
        if self.native is not None:
            raise ValueError("keys and values are rounded by PyTorch's operations only: load with kernels = torch")
        for number, one in enumerate(self._layers):
            if layer is None or number == layer:
                one.keep_rounded(rounding)

    def _native(self) -> NativeDecoder | None:
        config = self.config
        if not config.is_plain:
            return None
        layers = [weights for layer in self._layers if (weights := layer.native()) is not None]
        if len(layers) < config.num_hidden_layers:
            return None
        from engines.layers.native.compile_process import Form, compile_in_subprocess
        from engines.layers.native.decoder import NativeDecoder, fits
        from engines.layers.native.int8 import Int8Panels

        heads = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        if not fits(config.hidden_size, config.intermediate_size, *heads):
            return None
        compile_in_subprocess(Form.of(*heads, coded=isinstance(layers[0].qkv, Int8Panels)))
        return NativeDecoder(
            layers,
            self.embedding if self._shared is None or self._shared.panels is None else self._shared.panels,
            self._norm.weight,
            config.rms_norm_eps,
            self._rotary.table(),
            config.num_attention_heads,
            config.num_key_value_heads,
            config.intermediate_size,
        )

    def hidden(self, ids: Tensor, positions: Tensor, pages: Tensor, plan: AttentionPlan) -> Tensor:
        """The normalised final states of a flat batch; see `hidden_and_outputs`."""
        return self.hidden_and_outputs(ids, positions, pages, plan, ())[0]

    def hidden_and_outputs(
        self,
        ids: Tensor,
        positions: Tensor,
        pages: Tensor,
        plan: AttentionPlan,
        layers: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        mirror: Sequence[Tensor] | None = None,
        adapted: AdaptedRows | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run a flat batch.

        ids, positions: (tokens,); pages: (layers, pages, page_tokens, 2, kv_heads, head_dim), written to; dtype: format
        of the computation, None for `self.dtype`; mirror: by layer, if the plan has one; adapted: rows computed with
        adapters. Returns the normalised final states, (tokens, hidden), and the outputs of `layers` (from 0,
        ascending), of the same width.
        """
        x = self._rows(ids)
        if dtype is not None:
            x = x.to(dtype)
        if self._embedding_scale != 1:
            x = x * self._embedding_scale
        windowed = self.config.windowed
        whole = near = Reach(self._rotary.at(positions), plan)
        if windowed:
            near = Reach(self._local_rotary.at(positions), plan.within(self.config.window))
        outputs: list[Tensor] = []
        for index, layer in enumerate(self._layers):
            memory = Memory(pages[index], None if mirror is None else mirror[index])
            x = layer(x, self._rotary, near if index in windowed else whole, memory, adapted)
            if index in layers:
                outputs.append(x)
        return self._norm(x), outputs

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: (rows, hidden), only the rows that are sampled from. Returns (rows, vocabulary) float32."""
        return self._head(hidden.to(self.generation_dtype)).float()
