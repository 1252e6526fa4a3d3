"""The operations between the matrices, row by row: norms, rotation, the gate, and bfloat16 as bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engines.layers.native.compiled import compiled
from engines.layers.native.vectors import bits_of, float_of

Array = Any
"""A numpy array as a kernel sees it."""
ONE = np.float32(1.0)
LOG2_E = np.float32(math.log2(math.e))
LEAST, MOST = np.float32(-126.0), np.float32(126.0)
HALF = np.float32(0.5)
# 2^f for f in -0.5 .. 0.5: Taylor's series, with an error of 3e-6 at most; its result is rounded to bfloat16
POWERS = tuple(np.float32(math.log(2.0) ** n / math.factorial(n)) for n in range(6))
WHOLE = np.float32(3 << 22)
"""Added to a whole number, it moves the number to the lowest bits."""


@compiled
def rounded(value: float) -> Any:
    """The bits of the nearest bfloat16, ties to even; for finite numbers."""
    bits = bits_of(value)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled
def widened(half: int) -> Any:
    """A bfloat16's bits as the same number in float32."""
    return float_of(np.uint32(half) << np.uint32(16))


@compiled
def exponential(x: float) -> Any:
    """e^x in float32, written so that loops over it vectorize."""
    power = min(max(x * LOG2_E, LEAST), MOST)
    whole = np.floor(power + HALF)
    f = power - whole
    series = POWERS[5] * f + POWERS[4]
    series = series * f + POWERS[3]
    series = series * f + POWERS[2]
    series = series * f + POWERS[1]
    series = series * f + POWERS[0]
    return series * float_of((bits_of(whole + WHOLE) << np.uint32(23)) + np.uint32(0x3F800000))


@compiled
def embed(ids: Array, table: Array, x: Array) -> None:
    """x = rows of a bfloat16 table, (vocabulary, hidden)."""
    for row in range(ids.shape[0]):
        id_ = ids[row]
        for at in range(table.shape[1]):
            x[row, at] = widened(table[id_, at])


@compiled
def normalise(x: Array, weight: Array, epsilon: float, rows: int, out: Array) -> None:
    """The first columns of out = x / sqrt(mean(x^2) + epsilon) * weight."""
    width = weight.shape[0]
    for row in range(rows):
        scale = _inverse_length(x[row], width, epsilon)
        for at in range(width):
            out[row, at] = x[row, at] * scale * weight[at]


@compiled
def _inverse_length(x: Array, width: int, epsilon: float) -> Any:
    total = np.float32(0.0)
    for at in range(width):
        total += x[at] * x[at]
    return ONE / np.sqrt(total / np.float32(width) + epsilon)


@compiled
def add(x: Array, delta: Array, rows: int) -> None:
    """x += the first columns of delta."""
    for row in range(rows):
        for at in range(x.shape[1]):
            x[row, at] += delta[row, at]


@compiled
def copy(x: Array, rows: int, out: Array) -> None:
    """out = x. A slice assignment would compile numpy's error messages too, which takes seconds."""
    for row in range(rows):
        for at in range(x.shape[1]):
            out[row, at] = x[row, at]


@compiled
def gate(gate_up: Array, width: int, rows: int, out: Array) -> None:
    """out = silu(gate) * up, for rows of (gate | up), as bfloat16 bits."""
    for row in range(rows):
        # views: an index that is a sum might be negative, as far as the compiler knows, and does not vectorize
        gates, ups, own = gate_up[row, :width], gate_up[row, width:], out[row]
        for at in range(width):
            own[at] = rounded(gates[at] / (ONE + exponential(-gates[at])) * ups[at])


@compiled
def round_all(x: Array, width: int, rows: int, out: Array) -> None:
    """out = the first columns of x, as bfloat16 bits."""
    for row in range(rows):
        for at in range(width):
            out[row, at] = rounded(x[row, at])


@compiled
def rotate(qkv: Array, heads: int, head_dim: int, turns: Array, positions: Array) -> None:
    """Multiply the pairs of the first `heads` heads of each row by its position's complex numbers."""
    for row in range(positions.shape[0]):
        position = positions[row]
        for head in range(heads):
            numbers = qkv[row, head * head_dim : (head + 1) * head_dim]
            for pair in range(head_dim // 2):
                cosine, sine = turns[position, 2 * pair], turns[position, 2 * pair + 1]
                real, imaginary = numbers[2 * pair], numbers[2 * pair + 1]
                numbers[2 * pair] = real * cosine - imaginary * sine
                numbers[2 * pair + 1] = real * sine + imaginary * cosine


@compiled
def normalise_heads(qkv: Array, weight: Array, epsilon: float, rows: int) -> None:
    """The norm over each head, in place. weight: (heads, head_dim), or empty for no norm."""
    heads, head_dim = weight.shape
    for row in range(rows):
        for head in range(heads):
            numbers = qkv[row, head * head_dim : (head + 1) * head_dim]
            scale = _inverse_length(numbers, head_dim, epsilon)
            for at in range(head_dim):
                numbers[at] *= scale * weight[head, at]
