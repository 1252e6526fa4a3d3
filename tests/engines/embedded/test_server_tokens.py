"""What each of an engine's tokens opens."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from contracts.desired_state import Pool, Replica
from contracts.generation import Tier
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from router.core.decisions import ProbeGeneration
from router.core.events import GenerationProbed, Probe
from router.generation_probe import GenerationProber
from router.health import Target
from tests.engines.embedded.engine_process import QUESTION, TOKEN
from tests.engines.embedded.served import Served


async def test_only_health_is_open_without_the_token(chat_engine: Served) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/v1/models", "/v1/loads", "/get_model_info", "/usage?rid=x", "/nowhere"):
            async with session.get(chat_engine.url + path) as answer:
                assert answer.status == 401, path
        async with session.get(f"{chat_engine.url}/v1/models", headers={"authorization": "Bearer wrong"}) as answer:
            assert answer.status == 401


async def test_the_metrics_token_opens_counters_and_nothing_that_computes_or_tells(chat_engine: Served) -> None:
    body = {"model": "slipstream-chat", "messages": QUESTION, "max_tokens": 1}
    async with aiohttp.ClientSession(headers={"authorization": "Bearer metrics"}) as session:
        for path in ("/health", "/metrics", "/v1/loads"):
            async with session.get(chat_engine.url + path) as answer:
                assert answer.status == 200, path
        for method, path in (
            ("POST", "/abort_request"), ("POST", "/flush_cache"), ("GET", "/usage?rid=x"), ("GET", "/v1/models"),
            ("GET", "/server_info"),
        ):  # fmt: skip
            async with session.request(method, chat_engine.url + path, json=body) as answer:
                assert answer.status == 403, path
                assert (await answer.json())["message"] == "The metrics token opens load, metrics and probes only."
        for path in ("/v1/chat/completions", "/v1/completions"):
            async with session.post(chat_engine.url + path, json=body) as answer:
                assert answer.status == 403, path


PROBE = {"model": "slipstream-chat", "max_tokens": 1, "rid": "probe_1"}
ONE = [{"role": "user", "content": "1"}]


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        ({}, 200), ({"stream": True}, 200),
        ({"max_tokens": 2}, 403), ({"n": 2}, 403), ({"rid": "req_of_a_client"}, 403), ({"cache_salt": "org_1"}, 403),
        ({"messages": [{"role": "user", "content": "123456789"}]}, 403), ({"messages": ONE * 2}, 403),
        ({"regex": "a"}, 403), ({"logprobs": True}, 403), ({"tools": []}, 403), ({"priority": 9}, 403),
        ({"response_format": {"type": "json_object"}}, 403), ({"model": "x" * 2_000}, 413),
    ],
)  # fmt: skip
async def test_the_metrics_token_opens_one_token_and_no_more(
    chat_engine: Served, extra: dict[str, Any], status: int
) -> None:
    async with (
        aiohttp.ClientSession(headers={"authorization": "Bearer metrics"}) as session,
        session.post(f"{chat_engine.url}/v1/chat/completions", json={"messages": ONE, **PROBE, **extra}) as answer,
    ):
        assert answer.status == status, await answer.text()


@pytest.mark.parametrize("tier", list(Tier))
async def test_the_routers_probe_finds_an_embedded_engine_well(chat_engine: Served, tier: Tier) -> None:
    """With the keys that `slipstream router` has, over the engine's own port."""
    pool = Pool("p", "embedded", (Replica("r", chat_engine.url),))
    keys = EngineKeys(lambda: TOKEN, {}, lambda: "metrics")
    keys.follow((pool,))
    connections, heard = EngineConnections(keys), asyncio.Queue[GenerationProbed]()
    prober = GenerationProber(connections, drivers.get, heard.put_nowait)
    try:
        prober.probe(ProbeGeneration("r", "slipstream-chat", tier), Target(chat_engine.url, "embedded", "p"))
        outcome = await asyncio.wait_for(heard.get(), 60)
        assert outcome.probe is Probe.WELL, outcome.detail
    finally:
        await prober.stop()
        await connections.close()
