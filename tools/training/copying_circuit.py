"""First weights in which copying from the context is laid out, rather than left to be found.

A model learns to continue what it has seen before only after a long plateau: a head that looks one token back and,
in the next layer, a head that looks for it must appear together (Elhage et al. 2021; Olsson et al. 2022). Like the
first weights of Trockman and Kolter (2023), these imitate what training ends with, and training changes them as
any others: in the first layer the heads look one, two and three tokens back and write what they see to places of
their own; in the second they look for where what stands here was seen one back, and hand on the token they find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tools.training.model import Llama

_COMMON = 0.6
"""Of a direction that all tokens share, by which heads can look at a place whatever token is there."""
_TABLE_STD = 0.05
_SPACE = 0.7
"""Of the direction that tells a piece with a space before it from the same without."""
_WRITTEN = 0.12
"""Strength of what the first layer writes: about a token's own, so that neither drowns the other."""
_SHARP = 2.3
_HANDED_ON = 0.4
_LOOK_BACK = 6.0
"""How much better, before the softmax, the place wanted is than its neighbours, about."""
_QUICK = 0.12
_SLOW = 8e-4
"""Radians a token: pairs that turn faster than the first tell places, slower than the second do not mind them."""


@torch.no_grad()
def lay_out(
    model: Llama,
    generator: torch.Generator,
    twins: Sequence[tuple[int, int]] = (),
    digits: Sequence[Sequence[int]] = (),
) -> None:
    """Overwrite the table and the attention of the first two layers. The model must have as many key heads as query
    heads, at least two layers, and a rotary base with pairs slower than 0.0008 radians a token (1e6 does).

    twins: ids of pieces without and with a space before them; the latter begin as the former plus one direction for
    all, so that what is learnt of some holds for all. digits: the ids of 0, of 1 and so on; they begin on circles of
    ten, five, 10/3, 2.5 and two steps, on which adding is turning (what models come to by themselves, Nanda et al.
    2023), and on a line.
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
    around = basis[:, -11:].T  # away from the common direction
    for value, ids in enumerate(digits):
        table[list(ids)] = table[list(ids)] * 0.5 + _around(value, around) * _TABLE_STD * hidden**0.5
    for plain, spaced in twins:
        table[spaced] = table[plain] + _SPACE * _TABLE_STD * hidden**0.5 * basis[:, -12]
    table += _COMMON * _TABLE_STD * hidden**0.5 * common
    places = _look_back(_attention(model, 0), speeds, common, reading, hidden, heads, generator)
    second = _attention(model, 1)
    _look_up(second, speeds, reading, places, heads)
    turned = _orthonormal(hidden, hidden, generator)
    width = min(hidden, heads * dim)
    second["v_proj"][:width] = turned[:width]
    second["o_proj"][:, :width] = _HANDED_ON * turned[:width].T


def _around(value: int, directions: Tensor) -> Tensor:
    """Where a digit begins: five circles and a line."""
    turns = 2 * math.pi * value / 10 * torch.arange(1, 6)
    places = torch.cat((turns.cos(), turns.sin(), torch.tensor([(value - 4.5) / 3.0]))) * 0.3
    return places @ directions


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
    """Head j attends j + 1 tokens back. Returns where each writes, (hidden, dim)."""
    dim = reading.shape[0]
    share = hidden**0.5 * _COMMON / (1 + _COMMON**2) ** 0.5  # of the common direction, after the norm
    quick = int((speeds > _QUICK).sum())
    strength = (_LOOK_BACK * dim**0.5 / (1 - speeds[:quick].cos()).sum()) ** 0.5 / share
    places = []
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
        place = _orthonormal(hidden, dim, generator)
        weights["o_proj"][:, rows] = _WRITTEN * place
        places.append(place)
    return places


def _look_up(weights: dict[str, Tensor], speeds: Tensor, reading: Tensor, places: list[Tensor], heads: int) -> None:
    """Queries read this token (half of the heads: and the one before), keys the one before (and its predecessor)."""
    dim = reading.shape[0]
    slow = (speeds < _SLOW).nonzero().flatten().tolist()
    for head in range(heads):
        rows = slice(head * dim, (head + 1) * dim)
        query, key = weights["q_proj"][rows], weights["k_proj"][rows]
        query *= 0.1
        key *= 0.1
        depth = 1 if head < heads // 2 else min(2, len(places))
        for number, row in enumerate([*slow, *(dim // 2 + pair for pair in slow)]):
            level = number % depth
            read = _SHARP * reading[number] if level == 0 else 0.5 * _SHARP * places[level - 1][:, number]
            query[row] += depth**0.5 * read
            key[row] += depth**0.5 * 0.5 * _SHARP * places[level][:, number]


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    columns_of: Tensor = torch.linalg.qr(torch.randn(rows, columns, generator=generator))[0]
    return columns_of
