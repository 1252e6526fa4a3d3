"""Attention of single rows over a context that lies in pages: nothing is gathered, padded or masked.

Every row is a token at its own position and sees what lies before it, so one kernel serves running streams, guessed
tokens and pieces of a text alike. Keys and values are bfloat16, everything else float32. A row's sums are made in the
order of the positions: what else is in the batch does not matter, nor does the size of a page.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engines.layers.native.compiled import compiled
from engines.layers.native.pointwise import exponential
from engines.layers.native.vectors import (
    FLOAT,
    FLOATS,
    INT16,
    LANES,
    load_bfloat16,
    load_floats,
    multiply_add,
    number,
    pointer,
    spread,
    store_floats,
    variable,
)

Array = Any
Count = tuple[int, ...]
"""A number that the compiler must know: the length of a tuple of whatever."""
MOST_VECTORS = 16
"""Of a group of query heads: more than that do not stay in registers."""


@intrinsic
def _dots(
    typing_context: Any, query: Any, heads: Any, vectors: Any, keys: Any, stride: Any, count: Any, out: Any, width: Any
) -> Any:
    """out[head, at] = query[head] . keys[at] for `count` keys, `stride` bfloat16 apart; out: rows of `width`."""
    lengths = types.uintp, heads, vectors, types.uintp, types.intp, types.intp, types.uintp, types.intp

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query, _, _, keys, stride, count, out, width = arguments
        query = pointer(builder, query, FLOAT)
        keys = pointer(builder, keys, INT16)
        out = pointer(builder, out, FLOAT)
        kind = ir.FunctionType(FLOAT, [FLOAT, FLOATS])
        sum_up = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
        size = len(vectors)
        own = [
            [load_floats(builder, query, number(LANES * (head * size + at))) for at in range(size)]
            for head in range(len(heads))
        ]
        with cgutils.for_range(builder, count) as loop:
            here = builder.gep(keys, [builder.mul(loop.index, stride)])
            key = [load_bfloat16(builder, here, LANES * at) for at in range(size)]
            for head, mine in enumerate(own):
                lanes = builder.fmul(mine[0], key[0])
                for one, other in zip(mine[1:], key[1:], strict=True):
                    lanes = multiply_add(builder, one, other, lanes)
                product = builder.call(sum_up, [ir.Constant(FLOAT, -0.0), lanes], fastmath=("reassoc",))
                place = builder.add(builder.mul(width, number(head)), loop.index)
                builder.store(product, builder.gep(out, [place]))
        return context.get_dummy_value()

    return types.void(*lengths), code


@intrinsic
def _mix(
    typing_context: Any,
    weights: Any,
    width: Any,
    heads: Any,
    vectors: Any,
    values: Any,
    stride: Any,
    count: Any,
    out: Any,
) -> Any:
    """out[head] += sum over at of weights[head, at] * values[at]; like `_dots`."""
    lengths = types.uintp, types.intp, heads, vectors, types.uintp, types.intp, types.intp, types.uintp

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, width, _, _, values, stride, count, out = arguments
        weights = pointer(builder, weights, FLOAT)
        values = pointer(builder, values, INT16)
        out = pointer(builder, out, FLOAT)
        size = len(vectors)
        places = [[number(LANES * (head * size + at)) for at in range(size)] for head in range(len(heads))]
        sums = [[variable(builder, load_floats(builder, out, place)) for place in row] for row in places]
        # a variable is set where the function begins, which may be outside of a loop that we are in
        for row, offsets in zip(sums, places, strict=True):
            for register, place in zip(row, offsets, strict=True):
                builder.store(load_floats(builder, out, place), register)
        with cgutils.for_range(builder, count) as loop:
            here = builder.gep(values, [builder.mul(loop.index, stride)])
            value = [load_bfloat16(builder, here, LANES * at) for at in range(size)]
            for head, row in enumerate(sums):
                place = builder.add(builder.mul(width, number(head)), loop.index)
                weight = spread(builder, builder.load(builder.gep(weights, [place])))
                for register, part in zip(row, value, strict=True):
                    builder.store(multiply_add(builder, weight, part, builder.load(register)), register)
        for row, offsets in zip(sums, places, strict=True):
            for register, place in zip(row, offsets, strict=True):
                store_floats(builder, builder.load(register), out, place)
        return context.get_dummy_value()

    return types.void(*lengths), code


@compiled
def _softmax(scores: Array, count: int, scale: Any) -> Any:
    """scores = e^(scale * (scores - the largest)); returns their sum."""
    largest = scores[0]
    for at in range(1, count):
        largest = max(largest, scores[at])
    total = np.float32(0.0)
    for at in range(count):
        weight = exponential((scores[at] - largest) * scale)
        scores[at] = weight
        total += weight
    return total


@compiled
def attend(
    q: Array,
    memory: Array,
    page_tokens: int,
    positions: Array,
    pages: Array,
    firsts: Array,
    kv_heads: int,
    groups: int,
    heads: Count,
    vectors: Count,
    scores: Array,
    out: Array,
) -> None:
    """out[row] = the attention of row `row` over positions 0..positions[row].

    q: rows that begin with the queries; memory: a layer's (slots, 2 * kv_heads * head_dim), keys then values; pages:
    page numbers of all contexts, those of a row from firsts[row] on; heads: as many query heads share a key and are
    done at once, `groups` times per key and value head; vectors: sixteenths of a head; scores: scratch, (at least
    heads, at least positions).
    """
    together = len(heads)
    head_dim = len(vectors) * LANES
    width = scores.shape[1]
    stride = memory.shape[1]
    scale = np.float32(1.0 / np.sqrt(head_dim))
    for row in range(positions.shape[0]):
        length = positions[row] + 1
        first = firsts[row]
        query, target = q[row:].ctypes.data, out[row:].ctypes.data
        for group in range(kv_heads * groups):
            head = group // groups
            own = 4 * group * together * head_dim
            for at in range(together * head_dim):
                out[row, group * together * head_dim + at] = np.float32(0.0)
            for start in range(0, length, page_tokens):
                count = min(page_tokens, length - start)
                keys = memory[pages[first + start // page_tokens] * page_tokens :].ctypes.data + 2 * head * head_dim
                _dots(query + own, heads, vectors, keys, stride, count, scores.ctypes.data + 4 * start, width)
            for number_ in range(together):
                total = _softmax(scores[number_], length, scale)
                inverse = np.float32(1.0) / total
                for at in range(length):
                    scores[number_, at] *= inverse
            for start in range(0, length, page_tokens):
                count = min(page_tokens, length - start)
                values = memory[pages[first + start // page_tokens] * page_tokens :].ctypes.data
                values += 2 * (kv_heads + head) * head_dim
                _mix(scores.ctypes.data + 4 * start, width, heads, vectors, values, stride, count, target + own)
