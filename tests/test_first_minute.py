"""README's first minute as a newcomer has it: `slipstream up` on the models that come with the repository, both tiers
by the OpenAI SDK, a limit that refuses, what was used in the ledger, and a clean stop.

The gate's only deployment on real engines. tests/e2e looks at everything else there is to see of one.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import openai
import psutil
import pytest

from tests.deployment import Deployment, deployment

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
PROCESSES = {"postgres", "valkey", "router", "gateway-1", "engine-chat-1", "engine-autocomplete-1"}
"""All but the worker."""
ENGINES = {"chat": "slipstream-chat", "autocomplete": "slipstream-code"}


async def test_the_first_minute() -> None:
    async with deployment() as running:
        for tier, model in ENGINES.items():
            assert re.search(rf"^  {tier} +{model} +embedded engine, 1 replica, [\d,]+ tokens$", running.output, re.M)
        processes = await running.processes()
        assert set(processes) > PROCESSES
        assert {process["state"] for process in processes.values()} == {"ready"}
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0) as client:
            assert {model.id async for model in client.models.list()} == set(ENGINES.values())
            await _chat_streams_and_is_in_the_ledger(client, running)
            await _a_gap_is_filled(client, running)
        await _a_limit_refuses(running)
        await _it_stops_cleanly(running, [process["pid"] for process in processes.values()])


async def _chat_streams_and_is_in_the_ledger(client: openai.AsyncOpenAI, running: Deployment) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="slipstream-chat", messages=QUESTION, temperature=0, max_tokens=20, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [chunk async for chunk in raw.parse()]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "Paris" in "".join(texts)
    assert len([text for text in texts if text]) > 1, "it comes in pieces"
    usage = chunks[-1].usage
    assert usage is not None
    [row] = await running.ledger(raw.headers["x-request-id"])
    assert (row["prompt_tokens"], row["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert (row["model"], row["tier"], row["outcome"], row["finish"], row["billed"], row["status"]) == (
        "slipstream-chat", "chat", "exact", "complete", True, 200
    )  # fmt: skip


async def _a_gap_is_filled(client: openai.AsyncOpenAI, running: Deployment) -> None:
    raw = await client.completions.with_raw_response.create(
        model="slipstream-code", prompt="def add(a, b):\n", suffix="\n", max_tokens=16, temperature=0
    )
    filled = raw.parse()
    assert filled.choices[0].text.strip()
    assert filled.usage is not None
    assert 0 < filled.usage.completion_tokens <= 16
    [row] = await running.ledger(raw.headers["x-request-id"])
    assert (row["tier"], row["completion_tokens"]) == ("autocomplete", filled.usage.completion_tokens)


async def _a_limit_refuses(running: Deployment) -> None:
    key = await running.make_key("--requests-per-minute", "1", "--tokens-per-minute", "20000")
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as client:
        ask: dict[str, Any] = {"model": "slipstream-code", "prompt": "import ", "max_tokens": 1}
        await client.completions.create(**ask)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.completions.create(**ask)
    assert refused.value.code == "rate_limit_exceeded"
    assert "per minute" in refused.value.message
    headers = refused.value.response.headers
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert int(headers["retry-after"]) >= 1


async def _it_stops_cleanly(running: Deployment, pids: list[int]) -> None:
    assert await running.command("down") == "stopped\n"
    assert await running.process.wait() == 0
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert msgspec.json.decode(await running.command("status", "--json", accept=(1,)))["processes"] == []
