"""Attention of single rows over a context in pages, without gathering, padding or masking.

Every row is a token at its own position and attends to the positions up to it, so one kernel serves running streams,
drafts and chunks of prompts. A row is summed in the order of the positions, so it does not depend on the rest of the
batch.

A page stores the keys of a head by pairs of dimensions, (head_dim / 2, page_tokens, 2), and its values by pairs of
tokens, (page_tokens / 2, head_dim, 2). The kernel can then compute sixteen scores, or sixteen numbers of the result, at
once, and needs no sums across a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from engines.layers.native.compiled import compiled
from engines.layers.native.pointwise import exponential, rounded, widened
from engines.layers.native.vectors import (
    FLOAT,
    FLOATS,
    LANES,
    PAIR,
    PAIRS,
    add_products,
    expect_bytes,
    load,
    load_everywhere,
    number,
    pointer,
    registers,
    store,
)

Array = Any
Count = tuple[int, ...]
"""A number that the compiler must know, passed as the length of a tuple of any elements."""
MAX_VECTORS = 16
"""Limit of the vectors of a group of query heads; more do not stay in registers."""


@intrinsic
def _score(
    typing_context: Any, queries: Any, heads: Any, vectors: Any, keys: Any, tokens: Any, out: Any, width: Any
) -> Any:
    """out[head, 0..15] = query[head] . sixteen keys. queries: (heads, head_dim) bfloat16; keys: address of the first
    key in a page of `tokens` tokens; out: rows of `width` floats."""
    lengths = types.uintp, heads, vectors, types.uintp, types.intp, types.uintp, types.intp

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, _, _, keys, tokens, out, width = arguments
        queries, keys, out = (
            pointer(builder, queries, PAIR),
            pointer(builder, keys, PAIR),
            pointer(builder, out, FLOAT),
        )
        pairs = len(vectors) * LANES // 2
        # two sums per head, so that a product need not wait for the one before
        sums = [registers(builder, 2) for _ in heads]
        with cgutils.for_range(builder, number(pairs // 2)) as loop:
            for half in range(2):
                pair = builder.add(builder.mul(loop.index, number(2)), number(half))
                key = load(builder, PAIRS, keys, builder.mul(pair, tokens))
                for head, own in enumerate(sums):
                    query = load_everywhere(builder, queries, builder.add(pair, number(head * pairs)))
                    builder.store(add_products(builder, builder.load(own[half]), query, key), own[half])
        for head, (first, second) in enumerate(sums):
            total = builder.fadd(builder.load(first), builder.load(second))
            store(builder, total, out, builder.mul(width, number(head)))
        return context.get_dummy_value()

    return types.void(*lengths), code


@intrinsic
def _mix(
    typing_context: Any, weights: Any, width: Any, heads: Any, vectors: Any, values: Any, pairs: Any, out: Any
) -> Any:
    """out[head] += sum of weights[head, at] * values[at] over `pairs` pairs of tokens. weights: rows of `width`
    bfloat16; values: of a page; out: (heads, head_dim) floats."""
    lengths = types.uintp, types.intp, heads, vectors, types.uintp, types.intp, types.uintp

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, width, _, _, values, pairs, out = arguments
        weights, values, out = (
            pointer(builder, weights, PAIR),
            pointer(builder, values, PAIR),
            pointer(builder, out, FLOAT),
        )
        size = len(vectors)
        stride = builder.sdiv(width, number(2))
        sums = [registers(builder, size) for _ in heads]
        for head, own in enumerate(sums):
            for at, register in enumerate(own):
                builder.store(load(builder, FLOATS, out, number(LANES * (head * size + at))), register)
        with cgutils.for_range(builder, pairs) as loop:
            here = builder.mul(loop.index, number(size * LANES))
            parts = [load(builder, PAIRS, values, builder.add(here, number(LANES * at))) for at in range(size)]
            for head, own in enumerate(sums):
                place = builder.add(builder.mul(stride, number(head)), loop.index)
                weight = load_everywhere(builder, weights, place)
                for register, part in zip(own, parts, strict=True):
                    builder.store(add_products(builder, builder.load(register), weight, part), register)
        for head, own in enumerate(sums):
            for at, register in enumerate(own):
                store(builder, builder.load(register), out, number(LANES * (head * size + at)))
        return context.get_dummy_value()

    return types.void(*lengths), code


@compiled
def _softmax(scores: Array, count: int, scale: Any, weights: Array) -> Any:
    """weights = e^(scale * (scores - the largest)), rounded; returns their sum. Sets the weight after the last to 0."""
    largest = scores[0]
    for at in range(1, count):
        largest = max(largest, scores[at])
    for at in range(count):
        weights[at] = rounded(exponential((scores[at] - largest) * scale))
    weights[count] = np.uint16(0)
    total = np.float32(0.0)
    for at in range(count):
        total += widened(weights[at])
    return total


@compiled
def keep(keys: Array, values: Array, kv_heads: int, head_dim: int, page_tokens: int, slot: int, memory: Array) -> None:
    """Write a row's keys and values, (heads * head_dim), to its slot in a layer's (pages, numbers)."""
    page, token = slot // page_tokens, slot % page_tokens
    for head in range(kv_heads):
        key, value = keys[head * head_dim : (head + 1) * head_dim], values[head * head_dim : (head + 1) * head_dim]
        places = memory[page, (head * head_dim * page_tokens + 2 * token) :]
        for pair in range(head_dim // 2):
            places[2 * page_tokens * pair] = rounded(key[2 * pair])
            places[2 * page_tokens * pair + 1] = rounded(key[2 * pair + 1])
        start = kv_heads * head_dim * page_tokens + (head * (page_tokens // 2) + token // 2) * head_dim * 2 + token % 2
        places = memory[page, start:]
        for at in range(head_dim):
            places[2 * at] = rounded(value[at])


@compiled
def attend(
    row: int,
    group: int,
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
    weights: Array,
    sums: Array,
    out: Array,
) -> None:
    """out[row] = the attention of a row over positions 0..positions[row], rounded, for a group of query heads.

    q: (rows, queries) bfloat16 bits; memory: a layer's (pages, numbers); pages: page numbers of all contexts, a row's
    from firsts[row]; len(heads): query heads that share a key and are computed at once; groups: such groups per key and
    value head; len(vectors): sixteenths of a head; scores, weights: scratch of (heads, a multiple of page_tokens above
    the positions); sums: scratch of (heads, head_dim).
    """
    together = len(heads)
    head_dim = len(vectors) * LANES
    numbers = together * head_dim
    width = scores.shape[1]
    values = kv_heads * head_dim * page_tokens
    scale = np.float32(1.0 / np.sqrt(head_dim))
    length = positions[row] + 1
    first = firsts[row]
    own = group // groups * head_dim * page_tokens
    query = q[row:].ctypes.data + 2 * group * numbers
    for start in range(0, length, page_tokens):
        keys = memory[pages[first + start // page_tokens] :].ctypes.data + 2 * own
        expect_bytes(keys + 2 * values, 2 * page_tokens * head_dim)
        if start + page_tokens < length:
            following = memory[pages[first + start // page_tokens + 1] :].ctypes.data + 2 * own
            expect_bytes(following, 2 * page_tokens * head_dim)
        for block in range(0, min(page_tokens, length - start), LANES):
            target = scores.ctypes.data + 4 * (start + block)
            _score(query, heads, vectors, keys + 4 * block, page_tokens, target, width)
    for at in range(numbers):
        sums[at] = np.float32(0.0)
    for head in range(together):
        # the scores are no longer needed
        scores[head, 0] = _softmax(scores[head], length, scale, weights[head])
    for start in range(0, length, page_tokens):
        page = memory[pages[first + start // page_tokens] :].ctypes.data + 2 * (values + own)
        pairs = (min(page_tokens, length - start) + 1) // 2
        _mix(weights.ctypes.data + 2 * start, width, heads, vectors, page, pairs, sums.ctypes.data)
    for head in range(together):
        inverse = np.float32(1.0) / scores[head, 0]
        for at in range(head_dim):
            out[row, group * numbers + head * head_dim + at] = rounded(sums[head * head_dim + at] * inverse)
