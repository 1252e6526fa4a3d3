"""The division of memory on the examples of the founding documents, and what they got wrong.

They are numbered as in `tests/tools/planning/test_founding_documents.py`: S1 the anatomy of latency, S2 the chat
platform, S3 the code assistant, S4 the lesson on prefill and decode. Where an example rounds, the exact number stands
next to it.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.performance.catalog import H100, LLAMA_70B
from engines.performance.memory import MemoryDivision
from engines.performance.model_shape import ModelShape
from engines.performance.precision import Precision
from engines.performance.roofline import Node

GB = 1e9
BF16_70B = Precision.BF16.of(LLAMA_70B)
SEVEN_B = ModelShape("7b", 7e9, 32, 4_096, 32, 8, 128, weight_bytes=2, kv_bytes=2)
"""S3's and S4's, with 8 KV heads; Llama's own 7B has 32."""


def division(total_gb: float, weights_gb: float, reserve_gb: float, per_token: float) -> MemoryDivision:
    return MemoryDivision(total_gb * GB, reserve_gb * GB, weights_gb * GB, per_token)


def test_kv_of_one_sequence_with_grouped_and_with_full_attention() -> None:
    """S4: 1.34 GB and 10.74 GB at 4,096 tokens, eight times as much."""
    full = msgspec.structs.replace(BF16_70B, kv_heads=64)
    assert BF16_70B.kv_bytes_per_token == 327_680
    assert round(4_096 * BF16_70B.kv_bytes_per_token / GB, 2) == 1.34
    assert round(4_096 * full.kv_bytes_per_token / GB, 2) == 10.74
    assert full.kv_bytes_per_token == 8 * BF16_70B.kv_bytes_per_token


def test_the_anatomys_working_set_is_a_fifth_too_large() -> None:
    """S1 draws 0.4 MB a token, 600 MB of 1,500; corrected: 0.328 MB, 492 MB."""
    assert round(1_500 * BF16_70B.kv_bytes_per_token / 1e6) == 492


def test_a_hundred_users_of_a_70b_on_paper() -> None:
    """S4: 140 GB + 134 GB = 274 GB, which four H100 of 80 GB hold before anything else is counted."""
    kv = 100 * 4_096 * BF16_70B.kv_bytes_per_token
    assert round(kv / GB) == 134
    assert round((140 * GB + kv) / GB) == 274
    assert division(320, 140, 0, BF16_70B.kv_bytes_per_token).concurrent(4_096) >= 100


def test_two_hundred_users_of_a_7b_fit_with_one_reserve_and_not_with_another() -> None:
    """S4: 67.69 GB of 80; with a reserve of 8 GB they fit, with 16 they do not."""
    assert round((14 * GB + 200 * 2_048 * SEVEN_B.kv_bytes_per_token) / GB, 2) == 67.69
    fits = [division(80, 14, gb, SEVEN_B.kv_bytes_per_token).concurrent(2_048) >= 200 for gb in (8, 16)]
    assert fits == [True, False]


def test_the_longest_context_of_fifty_users() -> None:
    """S4: 320 − 140 − 40 GB, 8,544 tokens each."""
    assert division(320, 140, 40, BF16_70B.kv_bytes_per_token).context_tokens(50) == 8_544


def test_what_is_admitted_beside_forty_live_requests() -> None:
    """S4: a pool of 60 GB takes 16,384 tokens more, not 65,536."""
    pool = division(60, 0, 0, BF16_70B.kv_bytes_per_token)
    assert [pool.admits(40 * 4_096, tokens) for tokens in (16_384, 65_536)] == [True, False]


def test_an_fp8_cache_doubles_the_users() -> None:
    """S4: 59 and 119 users in 80 GB."""
    fp8 = msgspec.structs.replace(BF16_70B, kv_bytes=1)
    users = [division(80, 0, 0, shape.kv_bytes_per_token).concurrent(4_096) for shape in (BF16_70B, fp8)]
    assert users == [59, 119]


def test_concurrency_of_a_node_of_eight() -> None:
    """S2: 640 − 140 − 100 = 400 GB of 1.2 GB requests, "~300". Its own numbers give 333; with the exact 327,680 bytes a
    token and 4,096 tokens it is 298: the document is right by roundings that cancel out."""
    exact = division(640, 140, 100, BF16_70B.kv_bytes_per_token)
    assert exact.kv_bytes == 400 * GB
    assert division(640, 140, 100, 0.3e6).concurrent(4_000) == 333
    assert exact.concurrent(4_096) == 298
    # "a single 8k-context request eats ~2.5 GB": 2.68, so that 149 of them fit
    assert round(8_192 * BF16_70B.kv_bytes_per_token / GB, 2) == 2.68
    assert exact.concurrent(8_192) == 149


def test_files_that_an_editor_keeps_warm() -> None:
    """S3: 6K × 128 KB = 0.77 GB a file, "thousands of sessions". Corrected: 0.786 GB, 73 on one H100 in BF16 and 165
    with FP8 weights and cache: thousands are a fleet's."""
    assert round(6_000 * 128e3 / GB, 2) == 0.77
    assert round(6_000 * SEVEN_B.kv_bytes_per_token / GB, 3) == 0.786
    fp8 = Precision.FP8.of(SEVEN_B)
    kept = [
        division(80, shape.weights_bytes / GB, 8, shape.kv_bytes_per_token).concurrent(6_000)
        for shape in (SEVEN_B, fp8)
    ]
    assert kept == [73, 165]


def test_a_node_keeps_a_tenth_for_the_runtime_and_copies_the_heads_it_has_too_few_of() -> None:
    node = Node("n", H100, 8, LLAMA_70B)
    assert node.memory.reserve_bytes == pytest.approx(64 * GB)
    few = Node("n", H100, 8, msgspec.structs.replace(LLAMA_70B, kv_heads=2))
    assert few.memory.kv_bytes_per_token == 4 * few.model.kv_bytes_per_token


divisions = st.builds(
    division, st.floats(80, 2_000), st.floats(1, 400), st.floats(0, 100), st.sampled_from([65_536.0, 327_680.0])
)


@given(divisions, st.integers(1, 10_000))
def test_so_many_requests_of_the_longest_context_fit_and_one_token_more_does_not(
    memory: MemoryDivision, concurrent: int
) -> None:
    tokens = memory.context_tokens(concurrent)
    if tokens:
        assert tokens * concurrent * memory.kv_bytes_per_token <= memory.kv_bytes * (1 + 1e-12)
        assert memory.concurrent(tokens + 1) < concurrent or memory.kv_bytes <= 0
    assert memory.context_tokens(concurrent + 1) <= tokens


@given(divisions, st.integers(1, 100_000))
def test_more_weights_never_leave_more_room(memory: MemoryDivision, context_tokens: int) -> None:
    heavier = msgspec.structs.replace(memory, weights_bytes=memory.weights_bytes * 1.5)
    assert heavier.kv_tokens <= memory.kv_tokens
    assert heavier.concurrent(context_tokens) <= memory.concurrent(context_tokens)
