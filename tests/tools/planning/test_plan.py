"""Plans as a whole: what is true of every one of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from engines.performance.catalog import A100, B200, H100, H200, LLAMA_8B, LLAMA_70B
from engines.performance.fit import ContextBeyondKv, TensorParallelAcrossNodes, WeightsDoNotFit
from engines.performance.model_shape import ModelShape
from engines.performance.precision import Precision
from engines.performance.roofline import Node, Roofline
from tests.examples import examples
from tools.planning.measured_error import measured_errors
from tools.planning.operating_point import MAX_PROMPT_SHARE, at_batch
from tools.planning.plan import Hardware, Plan, cheapest, plan
from tools.planning.prefill import prefill_steps_s
from tools.planning.queueing import sojourn_p99_s
from tools.planning.replicas import Replicas, Side, replicas
from tools.planning.workload import Promise, PromiseOutOfReach, Workload

FOUR_H100 = Hardware(H100, Precision.FP8, 4, 2.71, 50e9)
EIGHT_H100 = msgspec.structs.replace(FOUR_H100, tensor_parallel=8)
PROMISE = Promise(1.5, 0.04)

workloads = st.builds(
    Workload,
    st.floats(0.1, 2_000),
    st.floats(10, 4_000),
    st.floats(2, 1_000),
    st.floats(0, 0.95),
    prompt_scv=st.floats(0, 1),
    average_share=st.floats(0.1, 1),
)


def made(workload: Workload, hardware: Hardware = EIGHT_H100, promise: Promise = PROMISE) -> Plan:
    return plan(LLAMA_70B, hardware, workload, promise)


@examples(nightly=200)
@given(workloads)
def test_a_plan_keeps_its_promises_and_satisfies_every_side(workload: Workload) -> None:
    found = made(workload)
    point = found.knee.operated_at
    assert all(found.replicas.needed >= found.replicas.of(side) - 1e-6 for side in Side)
    assert found.ttft_p99_s <= PROMISE.ttft_s * (1 + 1e-9)
    assert point.tpot_s <= PROMISE.tpot_s
    assert point.batch <= found.knee.point.batch
    assert point.kv_tokens <= found.node.kv_capacity_tokens
    cost = found.cost
    millions = workload.requests_per_s * workload.average_share * 3_600 / 1e6
    prompts = workload.new_tokens * cost.per_million_new_prompt_tokens
    billed = millions * (prompts + workload.output_tokens * cost.per_million_output_tokens)
    assert billed == pytest.approx(cost.per_hour)
    assert cost.per_hour == pytest.approx(found.cards * 2.71)


@examples(nightly=200)
@given(workloads, st.floats(1, 3))
def test_more_load_never_needs_fewer_replicas(workload: Workload, factor: float) -> None:
    more = msgspec.structs.replace(workload, requests_per_s=workload.requests_per_s * factor)
    before, after = made(workload), made(more)
    assert after.knee == before.knee
    assert all(after.replicas.of(side) >= before.replicas.of(side) for side in Side)
    assert after.cost.per_month >= before.cost.per_month


@examples(nightly=200)
@given(workloads, st.floats(1, 3))
def test_more_to_compute_or_to_keep_never_needs_fewer_replicas_at_a_batch(workload: Workload, factor: float) -> None:
    roofline = Roofline(Node("n", H100, 8, LLAMA_70B))

    def sides(**change: float) -> Replicas:
        asked = msgspec.structs.replace(workload, **change)
        return replicas(roofline, asked, Promise(20, 0.04), at_batch(roofline, asked, 8_192, 8), 8_192)

    before = sides()
    for after in (
        sides(cached_share=workload.cached_share / factor),
        sides(output_tokens=workload.output_tokens * factor),
        sides(prompt_tokens=workload.prompt_tokens * factor),
        sides(arrival_scv=workload.arrival_scv * factor),
    ):
        assert all(after.of(side) >= before.of(side) * (1 - 1e-9) for side in Side)


@examples(nightly=200)
@given(workloads, st.floats(0.3, 1))
def test_a_tighter_promise_never_needs_fewer_replicas_by_queueing(workload: Workload, part: float) -> None:
    tighter = Promise(PROMISE.ttft_s * part, PROMISE.tpot_s)
    before = made(workload)
    try:
        after = made(workload, promise=tighter)
    except PromiseOutOfReach:
        return
    assert after.knee.operated_at.batch <= before.knee.operated_at.batch
    if after.knee.operated_at == before.knee.operated_at:
        assert after.replicas.queueing >= before.replicas.queueing


@given(workloads, st.sampled_from([1, 2, 8, 32, 128]))
def test_a_larger_batch_carries_more_and_is_slower(workload: Workload, batch: int) -> None:
    roofline = Roofline(Node("n", H100, 8, LLAMA_70B))
    small, large = (at_batch(roofline, workload, 8_192, size) for size in (batch, batch * 2))
    assert large.step_s > small.step_s
    assert large.gap_s > small.gap_s
    prompt_shares = [point.requests_per_s * point.prefill_s for point in (small, large)]
    assert max(prompt_shares) <= MAX_PROMPT_SHARE * (1 + 1e-9)
    if prompt_shares[1] < MAX_PROMPT_SHARE * 0.99:
        assert large.requests_per_s > small.requests_per_s
        assert large.tpot_s > small.tpot_s


def test_one_replica_is_sized_by_the_errata_s_p99() -> None:
    """S1's 1 / (μ − λ) is the mean of what one replica's requests wait and take; the p99 is ln(100) times as long."""
    workload = Workload(1.0, 2_000, 200)
    point = made(workload).knee.operated_at
    rate = 0.5 / point.prefill_s
    mean_s = 1 / (1 / point.prefill_s - rate)
    assert sojourn_p99_s(1, rate, point.prefill_s) == pytest.approx(4.605 * mean_s, rel=1e-3)
    assert point.ttft_p99_s(workload, 1, rate) == pytest.approx(point.step_s + 4.605 * mean_s, rel=1e-3)


def test_the_resource_that_binds_is_named() -> None:
    cases = {
        Side.PREFILL: (Workload(10, 4_000, 20), EIGHT_H100, PROMISE),
        Side.BANDWIDTH: (Workload(10, 100, 1_000), EIGHT_H100, PROMISE),
        # each may take as long as it likes, and holds its memory meanwhile
        Side.KV_MEMORY: (Workload(10, 1_000, 1_000), FOUR_H100, Promise(30, 1.0)),
    }
    for side, (workload, hardware, promise) in cases.items():
        assert made(workload, hardware, promise).replicas.binding is side


def test_a_known_p99_of_prompts_is_in_the_first_tokens_p99() -> None:
    """Of 3,000 tokens on average; in an empty fleet the p99 is the prefill of that prompt and the step under way."""
    asked = Workload(0.001, 3_000, 400, prompt_p99_tokens=60_000)
    roofline = Roofline(Node("n", H100, 8, LLAMA_70B))
    point = at_batch(roofline, asked, 8_192, 1)
    alone_s = sum(prefill_steps_s(roofline, 60_000, 0, 8_192, 1, 3_200))
    assert point.ttft_p99_s(asked, 50, 0.001) == pytest.approx(point.step_s + alone_s, rel=1e-3)


def test_a_promised_gap_makes_chunks_smaller_and_is_kept() -> None:
    workload = Workload(10, 8_000, 200, prompt_scv=0.1)
    free, smooth = made(workload), made(workload, promise=Promise(1.5, 0.04, gap_s=0.08))
    assert free.chunk_tokens == H100.chunk_tokens
    assert smooth.chunk_tokens < free.chunk_tokens
    assert smooth.knee.point.gap_s <= 0.08 < free.knee.point.gap_s


def test_the_longest_context_of_a_fleet_is_looked_at_and_not_only_the_mean() -> None:
    with pytest.raises(ContextBeyondKv, match="2,000,000 tokens"):
        made(Workload(1, 1_000, 100, longest_tokens=2_000_000), FOUR_H100)


def test_prefill_and_decoding_are_split_only_where_that_moves_less_time_than_it_saves() -> None:
    fast = made(Workload(50, 3_000, 400), FOUR_H100)
    slow = made(Workload(50, 3_000, 400), msgspec.structs.replace(FOUR_H100, transfer_bytes_per_s=1e9))
    assert fast.split.worthwhile
    assert not slow.split.worthwhile
    assert slow.split.transfer_s == pytest.approx(3_000 * 163_840 / 1e9)
    assert slow.split.interference_s == fast.split.interference_s


def test_the_cheapest_number_of_cards_is_taken() -> None:
    kinds = [msgspec.structs.replace(FOUR_H100, tensor_parallel=cards) for cards in (1, 2, 4, 8)]
    workload = Workload(50, 1_000, 200)
    best = cheapest(LLAMA_70B, kinds, workload, PROMISE)
    able = []
    for kind in kinds:
        try:
            able.append(plan(LLAMA_70B, kind, workload, PROMISE).cost.per_hour)
        except ConfigError:
            continue
    assert len(able) > 1
    assert best.cost.per_hour == min(able)


def test_where_nothing_does_the_largest_kinds_reason_is_told() -> None:
    kinds = [Hardware(A100, Precision.BF16, cards, 1.71, 50e9) for cards in (1, 8)]
    with pytest.raises(PromiseOutOfReach, match=r"a single stream breaks the time to first token.*4,974 ms"):
        cheapest(LLAMA_70B, kinds, Workload(1, 30_000, 100), PROMISE)
    with pytest.raises(WeightsDoNotFit):
        cheapest(LLAMA_70B, kinds[:1], Workload(1, 100, 100), PROMISE)
    with pytest.raises(TensorParallelAcrossNodes):
        made(Workload(1, 100, 100), msgspec.structs.replace(FOUR_H100, tensor_parallel=16))


def test_fewer_bytes_a_weight_and_better_cards_cost_fewer_cards() -> None:
    workload = Workload(200, 1_500, 300)
    cards = [
        made(workload, Hardware(gpu, precision, 8, 1.0, 50e9)).cards
        for gpu, precision in (
            (H100, Precision.BF16),
            (H100, Precision.FP8),
            (H200, Precision.FP8),
            (B200, Precision.FP8),
            (B200, Precision.NVFP4),
        )
    ]
    assert cards == sorted(cards, reverse=True)
    assert cards[0] > cards[-1]


@pytest.mark.parametrize("model", [LLAMA_8B, LLAMA_70B])
def test_errors_are_told_only_where_something_was_measured(model: ModelShape) -> None:
    def errors(hardware: Hardware) -> tuple[object, ...]:
        node = Node("n", hardware.gpu, hardware.tensor_parallel, hardware.precision.of(model))
        told = measured_errors(node, hardware.precision, 400)
        return told.prefill_time, told.step_time, told.saturated_rate

    assert all(errors(msgspec.structs.replace(FOUR_H100, tensor_parallel=2))[1:])
    assert errors(Hardware(B200, Precision.NVFP4, 8, 5.0, 50e9)) == (None, None, None)
    assert errors(Hardware(A100, Precision.BF16, 8, 5.0, 50e9)) == (None, None, None)
