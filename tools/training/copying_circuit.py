"""Initial weights that can copy from the context, so that training does not have to find the circuit.

A model learns to continue what it has seen before only after a long plateau: a head that attends one token back and, in
the next layer, a head that matches its output must appear together (Elhage et al. 2021; Olsson et al. 2022). Like the
initial weights of Trockman and Kolter (2023), these imitate the result of training, and training changes them like any
others. In the first layer, heads attend one, two and three tokens back and write what they read to subspaces of their
own. In the second, heads attend to positions whose previous token is the current one, and copy the token they find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tools.training.model import Llama

_COMMON = 0.6
"""Strength of a direction that all tokens share, by which heads can attend to a position whatever its token."""
_TABLE_STD = 0.05
_SPACE = 0.7
"""Strength of the direction that distinguishes a piece with a space before it from the same piece without."""
_WRITTEN = 0.12
"""Strength of the first layer's output: about that of a token's embedding, so that neither dominates."""
_SHARP = 2.3
_HANDED_ON = 0.4
_LOOK_BACK = 6.0
"""Approximate lead of the wanted position over its neighbours before the softmax."""
_QUICK = 0.12
_SLOW = 8e-4
"""Radians per token: faster pairs than the first distinguish positions; slower pairs than the second ignore them."""


@torch.no_grad()
def lay_out(
    model: Llama,
    generator: torch.Generator,
    twins: Sequence[tuple[int, int]] = (),
    digits: Sequence[Sequence[int]] = (),
) -> None:
    """Overwrite the table and the attention of the first two layers. The model must have as many key heads as query
    heads, at least two layers, and a rotary base with pairs slower than 0.0008 radians per token (1e6 does).

    twins: pairs of ids, without and with a space before the piece; the latter start as the former plus one direction
    for all, so that what is learned of some holds for all. digits: the ids of 0, of 1 and so on; they start on circles
    of ten, five, 10/3, 2.5 and two steps, on which addition is rotation (as models also learn by themselves, Nanda et
    al. 2023), and on a line.
    """
    shape = model.shape
    hidden, dim, heads = shape.hidden_size, shape.head_dim, shape.num_attention_heads
    if shape.num_key_value_heads != heads or shape.num_hidden_layers < 2:
        raise ValueError("a copying circuit wants a key head for every query head, and two layers")
    speeds = 1.0 / shape.rope_theta ** (torch.arange(dim // 2) / (dim // 2))
    basis = _orthonormal(hidden, hidden, generator)
    common, reading = basis[:, 0], basis[:, 1 : 1 + dim].T
    table = model.embedding
    table.normal_(std=_TABLE_STD, generator=generator)
    table -= (table @ common)[:, None] * common
    circles = basis[:, -11:].T  # orthogonal to the common direction
    for value, ids in enumerate(digits):
        table[list(ids)] = table[list(ids)] * 0.5 + _around(value, circles) * _TABLE_STD * hidden**0.5
    for plain, spaced in twins:
        table[spaced] = table[plain] + _SPACE * _TABLE_STD * hidden**0.5 * basis[:, -12]
    table += _COMMON * _TABLE_STD * hidden**0.5 * common
    subspaces = _look_back(_attention(model, 0), speeds, common, reading, hidden, heads, generator)
    second = _attention(model, 1)
    _look_up(second, speeds, reading, subspaces, heads)
    turned = _orthonormal(hidden, hidden, generator)
    width = min(hidden, heads * dim)
    second["v_proj"][:width] = turned[:width]
    second["o_proj"][:, :width] = _HANDED_ON * turned[:width].T


def _around(value: int, directions: Tensor) -> Tensor:
    """The initial position of a digit on five circles and a line."""
    turns = 2 * math.pi * value / 10 * torch.arange(1, 6)
    coordinates = torch.cat((turns.cos(), turns.sin(), torch.tensor([(value - 4.5) / 3.0]))) * 0.3
    return coordinates @ directions


def _attention(model: Llama, layer: int) -> dict[str, Tensor]:
    start = f"model.layers.{layer}.self_attn."
    return {name.split(".")[-2]: weight for name, weight in model.named_parameters() if name.startswith(start)}


def _look_back(
    weights: dict[str, Tensor],
    speeds: Tensor,
    common: Tensor,
    reading: Tensor,
    hidden: int,
    heads: int,
    generator: torch.Generator,
) -> list[Tensor]:
    """Make head j attend j + 1 tokens back. Returns the subspace that each head writes to, (hidden, dim)."""
    dim = reading.shape[0]
    share = hidden**0.5 * _COMMON / (1 + _COMMON**2) ** 0.5  # of the common direction, after the norm
    quick = int((speeds > _QUICK).sum())
    strength = (_LOOK_BACK * dim**0.5 / (1 - speeds[:quick].cos()).sum()) ** 0.5 / share
    subspaces = []
    for head in range(min(3, heads - 1)):
        rows = slice(head * dim, (head + 1) * dim)
        query, key = weights["q_proj"][rows], weights["k_proj"][rows]
        query *= 0.1
        key *= 0.1
        for pair in range(quick):
            angle = -(head + 1) * speeds[pair]
            key[pair] += strength * common
            query[pair] += strength * angle.cos() * common
            query[dim // 2 + pair] += strength * angle.sin() * common
        weights["v_proj"][rows] = reading
        subspace = _orthonormal(hidden, dim, generator)
        weights["o_proj"][:, rows] = _WRITTEN * subspace
        subspaces.append(subspace)
    return subspaces


def _look_up(weights: dict[str, Tensor], speeds: Tensor, reading: Tensor, subspaces: list[Tensor], heads: int) -> None:
    """Queries read this token (in half of the heads also the one before), keys the one before (and its predecessor)."""
    dim = reading.shape[0]
    slow = (speeds < _SLOW).nonzero().flatten().tolist()
    for head in range(heads):
        rows = slice(head * dim, (head + 1) * dim)
        query, key = weights["q_proj"][rows], weights["k_proj"][rows]
        query *= 0.1
        key *= 0.1
        depth = 1 if head < heads // 2 else min(2, len(subspaces))
        for number, row in enumerate([*slow, *(dim // 2 + pair for pair in slow)]):
            level = number % depth
            read = _SHARP * reading[number] if level == 0 else 0.5 * _SHARP * subspaces[level - 1][:, number]
            query[row] += depth**0.5 * read
            key[row] += depth**0.5 * 0.5 * _SHARP * subspaces[level][:, number]


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    columns_of: Tensor = torch.linalg.qr(torch.randn(rows, columns, generator=generator))[0]
    return columns_of
