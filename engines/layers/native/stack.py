"""Runs the layers of a Llama over a flat batch of single rows, in one call without the interpreter lock.

In a small model, a step's arithmetic takes less time than the launches of its operations, and every operation releases
the lock to an event loop with other work. Here, a step of few rows is one call, and a step of many rows is one call per
block of a few milliseconds.
"""

from __future__ import annotations

from typing import Any

from engines.layers.native.attention import Count, attend, keep
from engines.layers.native.compiled import compiled
from engines.layers.native.int8 import embed_codes, encode, through_codes
from engines.layers.native.matmul import MAX_ROWS, PANEL, embed_panels, through
from engines.layers.native.pointwise import (
    add,
    copy,
    embed,
    gate,
    normalise,
    normalise_and_round,
    normalise_heads,
    rotate,
    round_all,
)
from engines.layers.native.team import announcing, begin, bounds, enter, go_on, reach, units_of
from engines.layers.native.vectors import LANES

Array = Any
QKV, OUTPUT, GATE_UP, DOWN = range(4)
BLOCK = 16 * MAX_ROWS
"""Limit of the rows of a call. They pass all layers together, so that intermediate values stay in the level-2 cache."""


@compiled
def project(
    board: int,
    first: int,
    parts: int,
    x: Array,
    panels: Array,
    which: int,
    rows: int,
    out: Array,
    codes: Array | None,
    steps: Array | None,
) -> Any:
    """The phase out = x W^T. panels: a layer's addresses; which: index of the matrix; codes, steps: the rows of x for a
    matrix of 8-bit integers, None for bfloat16."""
    all_panels = out.shape[1] // PANEL
    units = units_of(all_panels, parts)
    unit = enter(board, first, units)
    while unit >= 0:
        start, stop = bounds(unit, units, all_panels)
        multiply_columns(x, panels[which], rows, out, start * PANEL, stop * PANEL, codes, steps)
        unit = go_on(board, first, units)
    return first + units


@compiled
def multiply_columns(
    x: Array, panels: int, rows: int, out: Array, start: int, stop: int, codes: Array | None, steps: Array | None
) -> None:
    """Compute columns start..stop-1 of out = x W^T. A separate function, because numba prunes no branch in a loop."""
    # the condition is known at compile time, so only one branch is compiled
    if codes is None:
        through(x, panels, rows, out, start, stop)
    else:
        through_codes(x.shape[1], panels, rows, out, start, stop, codes, steps)


@compiled
def coded(row: int, x: Array, codes: Array | None, steps: Array | None) -> None:
    """Prepare a row for `project`."""
    if codes is not None:
        encode(row, x, codes, steps)


@compiled
def encode_rows(
    board: int, first: int, parts: int, rows: int, x: Array, codes: Array | None, steps: Array | None
) -> Any:
    """The phase that prepares all rows for `project`."""
    if codes is None:
        return first
    chunks = units_of(rows, parts)
    unit = enter(board, first, chunks)
    while unit >= 0:
        start, stop = bounds(unit, chunks, rows)
        for row in range(start, stop):
            encode(row, x[row], codes, steps)
        unit = go_on(board, first, chunks)
    return first + chunks


@compiled
def layers_of(
    board: int,
    unit_first: int,
    parts: int,
    part: int,
    start: int,
    stop: int,
    first: int,
    until: int,
    ids: Array,
    positions: Array,
    slots: Array,
    pages: Array,
    firsts: Array,
    memory: Array,
    page_tokens: int,
    embedding: Array,
    embedding_panels: Array,
    embedding_codes: Array,
    embedding_scales: Array,
    panels: Array,
    norms: Array,
    head_norms: Array,
    biases: Array,
    turns: Array,
    epsilon: float,
    kv_heads: int,
    groups: int,
    heads: Count,
    vectors: Count,
    qkv: Array,
    attended: Array,
    gate_up: Array,
    delta: Array,
    x: Array,
    normed: Array,
    queries: Array,
    gated: Array,
    codes: Array | None,
    steps: Array | None,
    scores: Array,
    weights: Array,
    sums: Array,
    wanted: Array,
    outputs: Array,
    out: Array,
) -> Any:
    """A kernel of a team that takes the rows start..stop-1 of the batch, at most `BLOCK`, through layers
    first..until-1. After the last layer, out = their normalised final states. Between two calls for the same rows, they
    are in `x`.

    ids to firsts: see `RowBatch`; a row may attend to the rows before it in the batch. For other arguments of `attend`,
    see there. memory: (layers, pages, numbers); embedding: (vocabulary, hidden) bfloat16 bits; if it has no rows, the
    table is the bits of `Panels`, and if these are empty, the codes and scales of `Int8Panels`; panels: (layers, 4)
    addresses; norms: (layers + 1, 2, hidden), ending with the final norm; biases: (layers, numbers of qkv), or empty;
    qkv to gated: scratch of `BLOCK` rows, bfloat16 bits as inputs of a matrix, as wide as whole panels as outputs;
    codes, steps: see `project`; scores to sums: scratch, one for each part; wanted: (layers,), 1 for a layer whose
    output goes to the next of `outputs`.
    """
    head_dim = len(vectors) * LANES
    query_heads = kv_heads * groups * len(heads)
    width, kv_width = query_heads * head_dim, kv_heads * head_dim
    last = panels.shape[0]
    rows = stop - start
    # keys of its own batch that a row attends to are in the pages before its block begins
    places, contexts = positions[start:stop], firsts[start:stop]
    chunks = units_of(rows, parts)
    all_heads = kv_heads * groups
    at = unit_first
    unit = enter(board, at, chunks)
    while unit >= 0:
        low, high = bounds(unit, chunks, rows)
        for row in range(low, high):
            if first == 0:
                id_ = ids[start + row]
                if embedding.shape[0]:
                    embed(id_, embedding, x[row])
                elif embedding_panels.shape[0]:
                    embed_panels(id_, embedding_panels, x[row])
                else:
                    embed_codes(id_, embedding_codes, embedding_scales, x[row])
            normalise_and_round(x[row], norms[first, 0], epsilon, normed[row])
            coded(row, normed[row], codes, steps)
        unit = go_on(board, at, chunks)
    at += chunks
    for layer in range(first, until):
        own = memory[layer]
        at = project(board, at, parts, normed, panels[layer], QKV, rows, qkv, codes, steps)
        unit = enter(board, at, chunks)
        while unit >= 0:
            low, high = bounds(unit, chunks, rows)
            for row in range(low, high):
                numbers = qkv[row]
                add(biases[layer], numbers)
                normalise_heads(numbers, head_norms[layer], epsilon)
                rotate(numbers, query_heads + kv_heads, head_dim, turns[places[row]])
                round_all(numbers, queries[row])
                keys, values = numbers[width : width + kv_width], numbers[width + kv_width : width + 2 * kv_width]
                keep(keys, values, kv_heads, head_dim, page_tokens, slots[start + row], own)
            unit = go_on(board, at, chunks)
        at += chunks
        # all rows of a head before those of the next, because they share keys
        unit = enter(board, at, all_heads * chunks)
        while unit >= 0:
            low, high = bounds(unit % chunks, chunks, rows)
            for row in range(low, high):
                where = own, page_tokens, places, pages, contexts
                scratch = scores[part], weights[part], sums[part]
                shape = kv_heads, groups, heads, vectors
                attend(row, unit // chunks, queries, *where, *shape, *scratch, attended)
            unit = go_on(board, at, all_heads * chunks)
        at += all_heads * chunks
        at = encode_rows(board, at, parts, rows, attended, codes, steps)
        at = project(board, at, parts, attended, panels[layer], OUTPUT, rows, delta, codes, steps)
        unit = enter(board, at, chunks)
        while unit >= 0:
            low, high = bounds(unit, chunks, rows)
            for row in range(low, high):
                add(delta[row], x[row])
                normalise_and_round(x[row], norms[layer, 1], epsilon, normed[row])
                coded(row, normed[row], codes, steps)
            unit = go_on(board, at, chunks)
        at += chunks
        at = project(board, at, parts, normed, panels[layer], GATE_UP, rows, gate_up, codes, steps)
        unit = enter(board, at, chunks)
        while unit >= 0:
            low, high = bounds(unit, chunks, rows)
            for row in range(low, high):
                gate(gate_up[row], gated[row])
                coded(row, gated[row], codes, steps)
            unit = go_on(board, at, chunks)
        at += chunks
        at = project(board, at, parts, gated, panels[layer], DOWN, rows, delta, codes, steps)
        unit = enter(board, at, chunks)
        while unit >= 0:
            low, high = bounds(unit, chunks, rows)
            for row in range(low, high):
                add(delta[row], x[row])
                if wanted[layer]:
                    output_index = 0
                    for before in range(layer):
                        output_index += wanted[before]
                    copy(x[row], outputs[output_index, start + row])
                if layer + 1 < until:
                    normalise_and_round(x[row], norms[layer + 1, 0], epsilon, normed[row])
                    coded(row, normed[row], codes, steps)
                elif until == last:
                    normalise(x[row], norms[last, 0], epsilon, out[start + row])
            unit = go_on(board, at, chunks)
        at += chunks
    return at


_announce = announcing(layers_of)


@compiled
def run_stack(board: int, parts: int, arguments: Any) -> None:
    """Run `layers_of` with the arguments on all threads."""
    first = begin(board)
    if parts > 1:
        _announce(board, first, parts, arguments)
    reach(board, layers_of(board, first, parts, 0, *arguments))
