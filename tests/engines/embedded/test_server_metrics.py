"""Metrics of an engine that serves."""

from __future__ import annotations

import uuid

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from engines.embedded.config import SchedulerConfig
from tests.engines.embedded.served import Served


async def test_metrics_have_sglangs_names(chat_engine: Served, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{chat_engine.url}/metrics") as answer:
        body = await answer.text()
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "generation_tokens_total",
        "cache_hit_rate",
        "kv_evictable_tokens",
        "num_retracted_reqs",
        "num_retracted_requests_total",
    ):
        assert f'sglang:{name}{{model_name="slipstream-chat"}}' in body
    assert "sglang:time_to_first_token_seconds_bucket" in body
    assert "sglang:step_seconds_bucket" in body


async def test_stages_of_a_request_are_told(chat_engine: Served, session: aiohttp.ClientSession) -> None:

    async def counts() -> dict[str, float]:
        async with session.get(f"{chat_engine.url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        (stages,) = [one for one in families if one.name == "sglang:per_stage_req_latency_seconds"]
        return {one.labels["stage"]: one.value for one in stages.samples if one.name.endswith("_count")}

    async def ask(prompt: list[int]) -> None:
        body = {"model": "slipstream-chat", "prompt": prompt, "max_tokens": 2, "cache_salt": uuid.uuid4().hex}
        async with session.post(f"{chat_engine.url}/v1/completions", json=body) as answer:
            assert answer.status == 200

    before = await counts()
    await ask([7] * 20)
    short = await counts()
    assert {stage: short[stage] - before[stage] for stage in short} == {
        "request_process": 1,
        "prefill_forward": 1,
        "chunked_prefill": 0,
    }
    await ask([7] * (2 * SchedulerConfig().max_batch_tokens + 1))
    long = await counts()
    assert {stage: long[stage] - short[stage] for stage in long} == {
        "request_process": 1,
        "prefill_forward": 1,
        "chunked_prefill": 2,
    }
