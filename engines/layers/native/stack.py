"""All layers of a Llama over a flat batch of single rows, in one call that holds no interpreter lock.

In a small model a step's arithmetic takes less time than starting each of its operations; and every operation gives the
lock away, to an event loop that has other things to do. Here a step is one call.
"""

from __future__ import annotations

from typing import Any

from engines.layers.native.attention import Count, attend
from engines.layers.native.compiled import compiled
from engines.layers.native.matmul import through
from engines.layers.native.pointwise import add, copy, embed, gate, keep, normalise, normalise_heads, rotate
from engines.layers.native.vectors import LANES

Array = Any
QKV, OUTPUT, GATE_UP, DOWN = range(4)


@compiled
def run_stack(
    ids: Array,
    positions: Array,
    slots: Array,
    pages: Array,
    firsts: Array,
    memory: Array,
    page_tokens: int,
    embedding: Array,
    panels: Array,
    norms: Array,
    head_norms: Array,
    turns: Array,
    epsilon: float,
    kv_heads: int,
    groups: int,
    heads: Count,
    vectors: Count,
    intermediate: int,
    x: Array,
    inner: Array,
    qkv: Array,
    attended: Array,
    gate_up: Array,
    gated: Array,
    scores: Array,
    wanted: Array,
    outputs: Array,
) -> None:
    """Compute the rows `ids` at `positions`; `x` holds the normalised final states afterwards.

    The first arrays are `RowBatch`'s, and what `attend` wants is as there. memory: (layers, slots, 2 * kv_heads *
    head_dim) bfloat16 bits; panels: (layers, 4) addresses; norms: (layers + 1, 2, hidden), the last is the final one;
    x to scores: scratch with at least as many rows, as wide as whole panels where a matrix is written; wanted:
    (layers,) 1 where a layer's output goes to the next of `outputs`.
    """
    rows = ids.shape[0]
    hidden = embedding.shape[1]
    head_dim = len(vectors) * LANES
    query_heads = kv_heads * groups * len(heads)
    queries = query_heads * head_dim
    told = 0
    embed(ids, embedding, x)
    for layer in range(panels.shape[0]):
        own = memory[layer]
        normalise(x, norms[layer, 0], epsilon, rows, inner)
        through(inner, hidden, panels[layer, QKV], rows, qkv)
        normalise_heads(qkv, head_norms[layer], epsilon, rows)
        rotate(qkv, query_heads + kv_heads, head_dim, turns, positions)
        keep(qkv, queries, 2 * kv_heads * head_dim, slots, own)
        attend(qkv, own, page_tokens, positions, pages, firsts, kv_heads, groups, heads, vectors, scores, attended)
        through(attended, queries, panels[layer, OUTPUT], rows, inner)
        add(x, inner, rows)
        normalise(x, norms[layer, 1], epsilon, rows, inner)
        through(inner, hidden, panels[layer, GATE_UP], rows, gate_up)
        gate(gate_up, intermediate, rows, gated)
        through(gated, intermediate, panels[layer, DOWN], rows, inner)
        add(x, inner, rows)
        if wanted[layer]:
            copy(x, rows, outputs[told])
            told += 1
    normalise(x, norms[panels.shape[0], 0], epsilon, rows, x)
