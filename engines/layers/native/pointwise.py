"""The operations between matrix products, by row: norms, rotation, the gate, and bfloat16 as bits."""

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
MIN, MAX = np.float32(-126.0), np.float32(126.0)
HALF = np.float32(0.5)
# Taylor series of 2^f for f in -0.5 .. 0.5, with an error of at most 3e-6; the result is rounded to bfloat16
POWERS = tuple(np.float32(math.log(2.0) ** n / math.factorial(n)) for n in range(6))
WHOLE = np.float32(3 << 22)
"""Adding this to a whole number moves the number to the lowest bits."""


@compiled
def rounded(value: float) -> Any:
    """The bits of the nearest bfloat16 of a finite number, with ties to even."""
    bits = bits_of(value)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled
def widened(half: int) -> Any:
    """The bfloat16 with these bits, as float32."""
    return float_of(np.uint32(half) << np.uint32(16))


@compiled
def exponential(x: float) -> Any:
    """e^x in float32, written so that loops over it vectorize."""
    power = min(max(x * LOG2_E, MIN), MAX)
    whole = np.floor(power + HALF)
    f = power - whole
    series = POWERS[5] * f + POWERS[4]
    series = series * f + POWERS[3]
    series = series * f + POWERS[2]
    series = series * f + POWERS[1]
    series = series * f + POWERS[0]
    return series * float_of((bits_of(whole + WHOLE) << np.uint32(23)) + np.uint32(0x3F800000))


@compiled
def embed(id_: int, table: Array, x: Array) -> None:
    """x = a row of a bfloat16 table, (vocabulary, hidden)."""
    for at in range(table.shape[1]):
        x[at] = widened(table[id_, at])


@compiled
def normalise(x: Array, weight: Array, epsilon: float, out: Array) -> None:
    """out = x / sqrt(mean(x^2) + epsilon) * weight, for one row."""
    width = weight.shape[0]
    scale = _inverse_length(x, width, epsilon)
    for at in range(width):
        out[at] = x[at] * scale * weight[at]


@compiled
def normalise_and_round(x: Array, weight: Array, epsilon: float, out: Array) -> None:
    """`normalise` with a result in bfloat16 bits."""
    width = weight.shape[0]
    scale = _inverse_length(x, width, epsilon)
    for at in range(width):
        out[at] = rounded(x[at] * scale * weight[at])


@compiled
def _inverse_length(x: Array, width: int, epsilon: float) -> Any:
    total = np.float32(0.0)
    for at in range(width):
        total += x[at] * x[at]
    return ONE / np.sqrt(total / np.float32(width) + epsilon)


@compiled
def add(x: Array, out: Array) -> None:
    """out += x, for one row; the surplus of the longer one is ignored."""
    for at in range(min(x.shape[0], out.shape[0])):
        out[at] += x[at]


@compiled
def copy(x: Array, out: Array) -> None:
    """out = x, for one row. A slice assignment would compile numpy's error messages too, which takes seconds."""
    for at in range(x.shape[0]):
        out[at] = x[at]


@compiled
def gate(gate_up: Array, out: Array) -> None:
    """out = silu(gate) * up, for a row of (gate | up), as bfloat16 bits."""
    width = out.shape[0]
    # use views, because the compiler cannot exclude that an index sum is negative, and does not vectorize it
    gates, ups = gate_up[:width], gate_up[width:]
    for at in range(width):
        out[at] = rounded(gates[at] / (ONE + exponential(-gates[at])) * ups[at])


@compiled
def round_all(x: Array, out: Array) -> None:
    """out = the first numbers of x, as bfloat16 bits."""
    for at in range(out.shape[0]):
        out[at] = rounded(x[at])


@compiled
def rotate(qkv: Array, heads: int, head_dim: int, turns: Array) -> None:
    """Multiply the pairs of the first `heads` heads of a row by the complex numbers of its position."""
    for head in range(heads):
        numbers = qkv[head * head_dim : (head + 1) * head_dim]
        for pair in range(head_dim // 2):
            cosine, sine = turns[2 * pair], turns[2 * pair + 1]
            real, imaginary = numbers[2 * pair], numbers[2 * pair + 1]
            numbers[2 * pair] = real * cosine - imaginary * sine
            numbers[2 * pair + 1] = real * sine + imaginary * cosine


@compiled
def normalise_heads(qkv: Array, weight: Array, epsilon: float) -> None:
    """Normalise each head of a row in place. weight: (heads, head_dim), or empty for no norm."""
    heads, head_dim = weight.shape
    for head in range(heads):
        numbers = qkv[head * head_dim : (head + 1) * head_dim]
        scale = _inverse_length(numbers, head_dim, epsilon)
        for at in range(head_dim):
            numbers[at] *= scale * weight[head, at]
