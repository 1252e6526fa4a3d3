"""A key's limits, counted exactly over two gateways: what clients are told, and when a place is free again."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from tests.deployment import Deployment
from tests.e2e.failures.live_stream import open_stream
from tests.e2e.failures.processes import fresh_connections
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]
GO_DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+(\.\d+)?s)|\d+ms")
COUNTERS = {f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")}


@contextlib.asynccontextmanager
async def limited(faked: Deployment, *options: str, max_retries: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client with a key of its own, limited by the options of `slipstream keys create`."""
    key = await faked.make_key(*options)
    async with openai.AsyncOpenAI(
        base_url=f"{faked.url}/v1", api_key=key, max_retries=max_retries, http_client=fresh_connections()
    ) as client:
        yield client


def rate_headers(headers: httpx2.Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}


async def test_over_the_request_limit(faked: Deployment, fresh_engines: list[FakeEngineProcess]) -> None:
    async with limited(faked, "--requests-per-minute", "3", "--tokens-per-minute", "100000") as client:
        for left in (2, 1, 0):
            raw = await client.chat.completions.with_raw_response.create(model="fake", messages=MESSAGES, max_tokens=9)
            told = rate_headers(raw.headers)
            assert set(told) == COUNTERS
            assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-limit-tokens"]) == ("3", "100000")
            assert told["x-ratelimit-remaining-requests"] == str(left)
            assert all(GO_DURATION.fullmatch(told[f"x-ratelimit-reset-{of}"]) for of in ("requests", "tokens"))
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=9, stream=True)
    error, headers = refused.value, refused.value.response.headers
    assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert "3 requests per minute" in error.message
    told = rate_headers(headers)
    assert set(told) == COUNTERS
    assert told["x-ratelimit-remaining-requests"] == "0"
    assert GO_DURATION.fullmatch(told["x-ratelimit-reset-requests"])
    # a request comes back every 20 s; the bucket is full after a minute
    assert 0 < int(headers["retry-after-ms"]) <= 20_000
    assert int(headers["retry-after"]) == math.ceil(int(headers["retry-after-ms"]) / 1_000)
    assert "x-should-retry" not in headers
    assert sum([len(await engine.recorded()) for engine in fresh_engines]) == 3


async def test_over_the_token_limit_names_tokens_and_gives_back_what_was_not_used(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=5, prompt_tokens=5)
    async with limited(faked, "--tokens-per-minute", "600") as client:
        # each reserves over 400 and uses 10: the second only fits because the first was settled
        for _ in range(2):
            await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=400)
        for engine in fresh_engines:
            await engine.control(hang_after_tokens=1)
        stream = await open_stream(client, faked, max_tokens=400)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=400)
        await stream.leave()
    error, headers = refused.value, refused.value.response.headers
    assert error.code == "rate_limit_exceeded"
    assert "600 tokens per minute" in error.message
    # what does not limit this key is not mentioned
    assert set(rate_headers(headers)) == {name for name in COUNTERS if name.endswith("tokens")}
    assert int(headers["retry-after-ms"]) > 0


async def test_a_request_larger_than_the_limit_is_not_worth_retrying(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    async with limited(faked, "--tokens-per-minute", "100", max_retries=2) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=101)
    error = refused.value
    assert error.code == "request_exceeds_limit"
    assert "limit of 100 tokens per minute" in error.message
    assert error.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in error.response.headers
    # the SDK, which retries a 429 twice, believed it
    assert error.response.request.headers["x-stainless-retry-count"] == "0"
    assert not any([await engine.recorded() for engine in fresh_engines])


async def test_concurrency_counts_over_all_gateways_and_frees_when_a_client_leaves(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(hang_after_tokens=1)
    async with limited(faked, "--max-concurrency", "2") as client:
        streams = [await open_stream(client, faked), await open_stream(client, faked)]
        for _ in range(6):  # whichever gateway it meets
            with pytest.raises(openai.RateLimitError) as refused:
                await client.chat.completions.create(model="fake", messages=MESSAGES)
            assert refused.value.code == "rate_limit_exceeded"
            assert "2 requests of this key are running, its limit is 2" in refused.value.message
            assert int(refused.value.response.headers["retry-after"]) >= 1
        for engine in fresh_engines:
            await engine.control(hang_after_tokens=-1)
        for stream in streams:
            await stream.leave()

        async def admitted() -> bool:
            with contextlib.suppress(openai.RateLimitError):  # until the gateways have noticed
                await client.chat.completions.create(model="fake", messages=MESSAGES)
                return True
            return False

        await eventually(admitted)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_place_is_free_once_the_answer_has_ended(
    faked: Deployment, fresh_engines: list[FakeEngineProcess], streamed: bool
) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=3)
    async with limited(faked, "--max-concurrency", "1") as client:
        for _ in range(40):  # no pause between an answer's last byte and the next request, on another gateway or not
            answer: Any = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=streamed)
            if streamed:
                assert [chunk async for chunk in answer]
