"""Layers of a Llama over a flat batch of single rows, in one call that holds no interpreter lock.

In a small model a step's arithmetic takes less time than starting each of its operations; and every operation releases
the lock to an event loop with other work. Here a step of few rows is one call, and a step of many is a call for each
block of some milliseconds.
"""

from __future__ import annotations

from typing import Any

from engines.layers.native.attention import Count, attend, keep
from engines.layers.native.compiled import compiled
from engines.layers.native.int8 import embed_codes, through_codes
from engines.layers.native.matmul import MOST_ROWS, PANEL, through
from engines.layers.native.pointwise import add, copy, embed, gate, normalise, normalise_heads, rotate, round_all
from engines.layers.native.team import columns_of, meet
from engines.layers.native.vectors import LANES

Array = Any
QKV, OUTPUT, GATE_UP, DOWN = range(4)
BLOCK = 16 * MOST_ROWS
"""Most rows of a call. They go through all layers together, so that intermediate values stay in the second-level
cache."""


@compiled
def project(
    x: Array,
    panels: int,
    rows: int,
    out: Array,
    codes: Array | None,
    steps: Array | None,
    part: int,
    parts: int,
    meeting: int,
) -> None:
    """Compute one part of out = x W^T; returns when all parts are done. codes, steps: scratch for a matrix of 8-bit
    integers; None: the matrix is bfloat16."""
    first, stop = columns_of(part, parts, out.shape[1], PANEL)
    # known at compile time: only one of the two is compiled
    if codes is None:
        through(x, panels, rows, out, first, stop)
    else:
        through_codes(x, panels, rows, out, first, stop, codes, steps)
    meet(meeting, parts)


@compiled
def run_stack(
    start: int,
    stop: int,
    first: int,
    until: int,
    part: int,
    parts: int,
    meeting: int,
    ids: Array,
    positions: Array,
    slots: Array,
    pages: Array,
    firsts: Array,
    memory: Array,
    page_tokens: int,
    embedding: Array,
    embedding_codes: Array,
    embedding_scales: Array,
    panels: Array,
    norms: Array,
    head_norms: Array,
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
    spare: Array,
    normed: Array,
    turned: Array,
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
) -> None:
    """Take the rows start..stop-1 of the batch, at most `BLOCK`, through the layers first..until-1. After the last
    layer: out = their normalised final states. Between two calls for the same rows they are in `x`.

    The first arrays are `RowBatch`'s, and what `attend` wants is as there. A row may see those before it in the batch.
    memory: (layers, pages, numbers); embedding: (vocabulary, hidden) bfloat16 bits; without rows it is a matrix of
    `Int8Panels`, the next two; panels: (layers, 4) addresses; norms: (layers + 1, 2, hidden), the last is the
    final one; qkv to gated: scratch of `BLOCK` rows, bfloat16 bits where a matrix is read, as wide as whole panels
    where one is written; codes, steps: see `project`; wanted: (layers,) 1 where a layer's output goes to the next of
    `outputs`.

    part, parts, meeting: this part of a `Team`. A part computes its columns of each matrix and its heads into the first
    four arrays, which all parts share, and meets the others after each. Every part computes the cheap steps itself, in
    its own scratch from `x` on. With one part `turned` is `qkv`.
    """
    head_dim = len(vectors) * LANES
    query_heads = kv_heads * groups * len(heads)
    width = query_heads * head_dim
    last, hidden = panels.shape[0], x.shape[1]
    rows = stop - start
    # the positions of its own batch that a row attends to are in the pages when its block comes
    places, contexts, targets = positions[start:stop], firsts[start:stop], slots[start:stop]
    if first == 0:
        if embedding.shape[0]:
            embed(ids[start:stop], embedding, x)
        else:
            embed_codes(ids[start:stop], embedding_codes, embedding_scales, x)
    taken = 0
    for layer in range(first):
        taken += wanted[layer]
    for layer in range(first, until):
        own = memory[layer]
        normalise(x, norms[layer, 0], epsilon, rows, spare)
        round_all(spare, hidden, rows, normed)
        project(normed, panels[layer, QKV], rows, qkv, codes, steps, part, parts, meeting)
        if parts > 1:
            copy(qkv, rows, turned)
        normalise_heads(turned, head_norms[layer], epsilon, rows)
        rotate(turned, query_heads + kv_heads, head_dim, turns, places)
        round_all(turned, width, rows, queries)
        keep(turned, width, part, parts, kv_heads, head_dim, page_tokens, targets, own)
        where = own, page_tokens, part, parts, places, pages, contexts
        attend(queries, *where, kv_heads, groups, heads, vectors, scores, weights, sums, attended)
        meet(meeting, parts)
        project(attended, panels[layer, OUTPUT], rows, delta, codes, steps, part, parts, meeting)
        add(x, delta, rows)
        normalise(x, norms[layer, 1], epsilon, rows, spare)
        round_all(spare, hidden, rows, normed)
        project(normed, panels[layer, GATE_UP], rows, gate_up, codes, steps, part, parts, meeting)
        gate(gate_up, gated.shape[1], rows, gated)
        project(gated, panels[layer, DOWN], rows, delta, codes, steps, part, parts, meeting)
        add(x, delta, rows)
        if wanted[layer]:
            if part == 0:
                copy(x, rows, outputs[taken, start:stop])
            taken += 1
    if until == last and part == 0:
        normalise(x, norms[last, 0], epsilon, rows, out[start:stop])
