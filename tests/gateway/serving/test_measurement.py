"""What the pipeline measures of a request: where it ran, what it used, and how its tokens came."""

from __future__ import annotations

import msgspec
import pytest

from contracts.phases import Phase
from gateway.observability.measurement import Measurement
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, body, harness
from tests.virtual_time import in_virtual_time, now_s

STREAM = body(stream=True)


async def measured(platform: Harness, asked: bytes = STREAM, client: Client | None = None) -> Measurement:
    """Of one request."""
    await platform.serve(client or Client(), asked)
    return platform.traces.measured[-1]


def first_tokens(platform: Harness) -> float:
    """Counted in the histogram, whatever their labels."""
    name = "slipstream_time_to_first_token_seconds_count"
    return sum(one.value for each in platform.registry.collect() for one in each.samples if one.name == name)


@in_virtual_time
async def test_a_stream_is_measured_where_it_ran() -> None:
    async with harness() as platform:
        platform.script(tokens=6, prompt_tokens=7, cached_tokens=3, inter_token_s=0.05)
        found = await measured(platform)
        assert (found.pool, found.replica_id, found.canary) == ("pool", "engine-0", False)
        assert (found.stream, found.attempts) == (True, 1)
        assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (7, 3, 6)
        assert None not in (found.ttft_ms, found.tpot_ms, found.itl_max_ms)
        assert found.client_stall_ms == 0.0
        labels = {"tier": "chat", "length": "short", "model": "m", "pool": "pool", "side": "baseline"}
        for name in ("time_to_first_token", "time_per_output_token", "longest_gap"):
            assert platform.sample(f"slipstream_{name}_seconds_count", **labels) == 1
        assert first_tokens(platform) == 1
        assert platform.sample("slipstream_gaps_over_100ms_total", **labels) == found.gaps_over_100ms
        assert (found.engine_queue_ms, found.engine_prefill_ms, found.retractions) == (None, None, None)
        assert platform.sample("slipstream_engine_queue_seconds_count", pool="pool") is None


@in_virtual_time
async def test_every_time_between_two_tokens_is_in_one_histogram() -> None:
    async with harness() as platform:
        labels = {"tier": "chat", "length": "short", "model": "m", "pool": "pool", "side": "baseline"}
        gaps, sum_s = 0, 0.0
        for tokens in (6, 3, 1):
            platform.script(tokens=tokens, inter_token_s=0.02)
            request = await platform.serve(Client(), STREAM)
            assert request.timing is not None
            gaps += request.timing.arrivals - 1
            sum_s += request.timing.decode_s
            assert platform.sample("slipstream_inter_token_seconds_count", **labels) == gaps > 0
            assert platform.sample("slipstream_inter_token_seconds_sum", **labels) == pytest.approx(sum_s)
        assert platform.sample("slipstream_inter_token_seconds_bucket", le="+Inf", **labels) == gaps
        platform.script(tokens=6)
        await platform.serve(Client(), body(stream=True, n=2))  # as one stream: its gaps are nobody's
        assert platform.sample("slipstream_inter_token_seconds_count", **labels) == gaps


@in_virtual_time
async def test_the_time_to_the_first_token_is_its_phases_to_the_microsecond() -> None:
    async with harness() as platform:
        platform.script(tokens=3, ttft_s=0.01, text_gap_s=0.01, inter_token_s=0.005)
        request = await platform.serve(Client(), STREAM)
        phases_ms = request.clock.as_ms()
        until_ms = sum(took_ms for phase, took_ms in phases_ms.items() if phase not in (Phase.DECODE, Phase.STREAM))
        assert request.measurement.ttft_ms == pytest.approx(until_ms, abs=0.01)


@in_virtual_time
@pytest.mark.parametrize("asked", [STREAM, body()])
async def test_the_router_learns_of_the_first_text_and_not_of_a_role(asked: bytes) -> None:
    async with harness() as platform:
        platform.script(tokens=3, ttft_s=0.01, text_gap_s=0.5, inter_token_s=0.005)
        began_s = now_s()
        request = await platform.serve(Client(), asked)
        assert request.clock.first_token_s is not None
        assert [at_s - began_s for at_s in platform.router.told_at_s] == [pytest.approx(0.51)]


@in_virtual_time
async def test_an_answer_without_any_text_teaches_the_router_no_time() -> None:
    async with harness() as platform:
        platform.script(tokens=0)
        await platform.serve(Client(), STREAM)
        assert not platform.router.first_tokens


@in_virtual_time
async def test_an_answer_that_is_not_streamed_is_measured_at_the_engine() -> None:
    async with harness() as platform:
        platform.script(tokens=6, inter_token_s=0.05)
        found = await measured(platform, body())
        assert found.stream is False
        assert None not in (found.ttft_ms, found.tpot_ms, found.itl_max_ms)


async def test_the_attempt_that_answered_is_the_one_that_is_measured() -> None:
    async with harness() as platform:
        platform.engines[0].control(msgspec.json.encode({"die_after_tokens": 0}))
        found = await measured(platform)
        assert (found.replica_id, found.attempts, found.completion_tokens) == ("engine-1", 2, 4)


async def test_a_request_that_found_no_engine_ran_nowhere_and_has_a_length() -> None:
    async with harness(engines=0) as platform:
        found = await measured(platform)
        assert (found.pool, found.canary, found.completion_tokens, found.ttft_ms) == (None, None, None, None)
        assert found.attempts == 1
        assert found.prompt_tokens
        assert first_tokens(platform) == 0


async def test_of_an_attempt_that_found_no_engine_the_one_before_says_where_it_ran() -> None:
    async with harness(engines=1) as platform:
        platform.script(die_after_tokens=0)
        found = await measured(platform)
        assert (found.pool, found.replica_id, found.attempts) == ("pool", "engine-0", 2)


async def test_what_an_engine_tells_of_its_own_time_is_kept() -> None:
    async with harness(driver="embedded") as platform:
        platform.script(
            tokens=3, drafts=4, engine_queue_ms=12.5, engine_prefill_ms=250.0, engine_grammar_ms=31.5, retractions=2
        )
        found = await measured(platform)
        assert (found.engine_queue_ms, found.engine_prefill_ms, found.retractions) == (12.5, 250.0, 2)
        assert found.engine_grammar_ms == 31.5
        assert platform.journal.records[-1].usage.draft_tokens == 4
        for name, total_s in (("queue", 0.0125), ("prefill", 0.25), ("grammar", 0.0315)):
            assert platform.sample(f"slipstream_engine_{name}_seconds_sum", pool="pool") == pytest.approx(total_s)


async def test_several_choices_have_a_first_token_and_no_gaps() -> None:
    async with harness() as platform:
        platform.script(tokens=6)
        found = await measured(platform, body(stream=True, n=2))
        assert found.completion_tokens == 12
        assert found.ttft_ms is not None
        assert (found.tpot_ms, found.itl_max_ms, found.gaps_over_100ms) == (None, None, None)


async def test_tokens_that_arrive_together_have_no_time_each() -> None:
    async with harness() as platform:
        platform.script(tokens=6, split="joined")
        found = await measured(platform)
        assert found.ttft_ms is not None
        assert (found.tpot_ms, found.itl_max_ms) == (None, None)
