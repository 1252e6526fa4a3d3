"""The weights of a decoder in the kernels' layout, and the kernels' scratch memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engines.layers.native.attention import MAX_VECTORS
from engines.layers.native.compile_process import Form
from engines.layers.native.compiled import cached
from engines.layers.native.int8 import Int8Panels, code_scratch
from engines.layers.native.matmul import Panels
from engines.layers.native.stack import BLOCK, run_stack
from engines.layers.native.vectors import LANES
from engines.layers.row_batch import RowBatch

Array = Any
MAX_PAGE_TOKENS = 256
"""The limit that the settings allow."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The weights of one layer. The matrices of all layers have the same type."""

    qkv: Panels | Int8Panels
    output: Panels | Int8Panels
    gate_up: Panels | Int8Panels
    down: Panels | Int8Panels
    input_norm: Tensor
    post_norm: Tensor
    head_norm: Tensor | None
    """(query and key heads, head_dim)"""
    qkv_bias: Tensor | None = None
    """(outputs of qkv,)"""


class NativeDecoder:
    """All layers and the final norm, for rows at any positions. Calls share scratch memory, so they must not overlap.

    Keys and values are stored in a page as described in `attention`; no other code may read or write these pages.
    """

    def __init__(
        self,
        layers: list[LayerWeights],
        embedding: Tensor | Panels | Int8Panels,
        final_norm: Tensor,
        epsilon: float,
        turns: Tensor,
        heads: int,
        kv_heads: int,
        intermediate: int,
    ) -> None:
        """embedding: (vocabulary, hidden) bfloat16, or a matrix with these rows; turns: (positions, head_dim) cosine
        and sine of each pair, side by side. Compiles the kernels, in seconds, or loads them, in tenths of a second."""
        hidden, head_dim = layers[0].input_norm.shape[0], turns.shape[1]
        shared = heads // kv_heads
        together, vectors, _ = Form.of(heads, kv_heads, head_dim, coded=False)
        self._layers = layers
        self._hidden = hidden
        self._embedding = _embedding(embedding, hidden)
        self._panels = np.array(
            [[part.address for part in (one.qkv, one.output, one.gate_up, one.down)] for one in layers], np.int64
        )
        final = torch.stack((final_norm, final_norm))
        norms = [*(torch.stack((one.input_norm, one.post_norm)) for one in layers), final]
        self._norms = torch.stack(norms).float().numpy()
        none = torch.empty(0, head_dim)
        head_norms = [none if one.head_norm is None else one.head_norm for one in layers]
        self._head_norms = torch.stack(head_norms).float().numpy()
        biases = [torch.empty(0) if one.qkv_bias is None else one.qkv_bias for one in layers]
        self._biases = torch.stack(biases).float().numpy()
        self._turns = turns.numpy()
        self._shape = (np.float32(epsilon), kv_heads, shared // together, (0,) * together, (0,) * vectors)
        self._kept_shape = (2, kv_heads, head_dim)
        first, queries = layers[0], heads * head_dim
        self._team = first.qkv.team
        # the last page may have the maximum size, and rows of bfloat16 are read in pairs
        longest = -(-turns.shape[0] // MAX_PAGE_TOKENS) * MAX_PAGE_TOKENS + MAX_PAGE_TOKENS
        coded = isinstance(first.qkv, Int8Panels)
        parts = self._team.parts
        self._scratch = (
            np.zeros((BLOCK, first.qkv.width), np.float32),
            np.zeros((BLOCK, queries), np.uint16),
            np.zeros((BLOCK, first.gate_up.width), np.float32),
            np.zeros((BLOCK, first.output.width), np.float32),
            np.zeros((BLOCK, hidden), np.float32),
            np.zeros((BLOCK, hidden), np.uint16),
            np.zeros((BLOCK, queries), np.uint16),
            np.zeros((BLOCK, intermediate), np.uint16),
            *(code_scratch(BLOCK, max(hidden, queries, intermediate)) if coded else (None, None)),
            np.zeros((parts, together, longest), np.float32),
            np.zeros((parts, together, longest), np.uint16),
            np.zeros((parts, together * head_dim), np.float32),
        )
        tiny = torch.zeros(len(layers), 1, LANES, 2, kv_heads, head_dim, dtype=torch.bfloat16)
        one = np.zeros(1, np.int64)
        self(RowBatch(one, one, one, one, one), tiny)

    def __call__(
        self,
        batch: RowBatch,
        pages: Tensor,
        wanted: tuple[int, ...] = (),
        goes_on: Callable[[int, int], bool] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """pages: (layers, pages, page_tokens, 2, kv_heads, head_dim) bfloat16, written to. Returns the normalised final
        states, (rows, hidden) float32, and the outputs of the layers in `wanted`, which is ascending.

        goes_on: called with (start, stop) before each further call for the rows start..stop-1. If it returns False, the
        rest of these rows is skipped, and their results are meaningless. None computes all rows.
        """
        if pages.shape[3:] != self._kept_shape or pages.dtype is not torch.bfloat16:
            # a kernel would overwrite the memory after the pages
            raise ValueError(f"pages of {tuple(pages.shape)} {pages.dtype} are not this model's")
        rows = batch.ids.shape[0]
        is_wanted = np.zeros(len(self._layers), np.int64)
        is_wanted[list(wanted)] = 1
        outputs = torch.empty(len(wanted), rows, self._hidden)
        out = torch.empty(rows, self._hidden)
        arguments = (
            batch.ids, batch.positions, batch.slots, batch.pages, batch.firsts,
            _bits(pages).reshape(pages.shape[0], pages.shape[1], -1), pages.shape[2],
            *self._embedding, self._panels, self._norms, self._head_norms, self._biases, self._turns, *self._shape,
            *self._scratch,
        )  # fmt: skip
        results = is_wanted, outputs.numpy(), out.numpy()
        run, last = cached(run_stack), len(self._layers)
        for start in range(0, rows, BLOCK):
            stop = min(start + BLOCK, rows)
            # a call does no more work than a whole block in one layer, so few rows take several layers
            layers = max(BLOCK // (stop - start), 1)
            for first in range(0, last, layers):
                if goes_on is not None and (start or first) and not goes_on(start, stop):
                    break
                self._team.wake()
                run(
                    self._team.board,
                    self._team.parts,
                    (start, stop, first, min(first + layers, last), *arguments, *results),
                )
        return out, list(outputs.unbind(0))


def _embedding(embedding: Tensor | Panels | Int8Panels, hidden: int) -> tuple[Array, Array, Array, Array]:
    """The four embedding arguments of `layers_of`."""
    plain, panels = np.zeros((0, hidden), np.uint16), np.zeros((0, 1, 1, 1), np.uint16)
    codes, scales = np.zeros((0, 1, 1, 1), np.int8), np.zeros(0, np.float32)
    match embedding:
        case Int8Panels():
            codes, scales = embedding.codes.numpy(), embedding.scales.numpy()
        case Panels():
            panels = _bits(embedding.table)
        case _:
            plain = _bits(embedding)
    return plain, panels, codes, scales


def fits(hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int) -> bool:
    """Whether the kernels support a model with these dimensions."""
    even = hidden % 2 == 0 and intermediate % 2 == 0
    return even and heads % kv_heads == 0 and head_dim % LANES == 0 and head_dim // LANES <= MAX_VECTORS


def _bits(tensor: Tensor) -> Array:
    """A bfloat16 tensor's memory as numpy's uint16."""
    return tensor.view(torch.int16).numpy().view(np.uint16)
