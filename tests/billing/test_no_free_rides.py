"""The table of docs/concepts/usage.md, row by row: what each end of an attempt costs, and what it takes from limits."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from tests.billing.customer import Customer, End, ask
from tests.billing.dialects import (
    CACHED_TOKENS,
    DIALECTS,
    EMBEDDED,
    FINAL_COUNT,
    PLACES,
    PLAIN,
    PROMPT_TOKENS,
    TELLING,
    Dialects,
    Key,
    asked,
)
from tests.waiting import eventually

REQUESTS = 2
"""A minute's, of a key whose requests are counted: one comes back in half a minute."""
Test = Callable[..., Coroutine[Any, Any, None]]
streamed_or_not = pytest.mark.parametrize("stream", [True, False])


def every_dialect(test: Test) -> Test:
    """The test with each dialect as its `model`, all at the same time: they have nothing in common."""

    @functools.wraps(test)
    async def together(**arguments: Any) -> None:
        async def one(model: str) -> None:
            try:
                await test(model=model, **arguments)
            except Exception as error:
                error.add_note(f"dialect: {model}")
                raise

        await asyncio.gather(*map(one, DIALECTS))

    signature = inspect.signature(test)
    left = [parameter for name, parameter in signature.parameters.items() if name != "model"]
    together.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    return together


async def answered(platform: Dialects, key: Key, model: str, *, stream: bool = True, **more: Any) -> Customer:
    """One request, read to its end."""
    request = asked(key, model, more.pop("max_tokens", 8), stream=stream, **more)
    return await ask(platform.running.port, request, None, None)


def charged(row: dict[str, Any]) -> tuple[int, int, bool]:
    return row["prompt_tokens"], row["completion_tokens"], row["billed"]


@streamed_or_not
@every_dialect
async def test_a_prefill_nobody_waits_for_is_billed_and_takes_its_request(
    platform: Dialects, model: str, stream: bool
) -> None:
    await platform.script(model, ttft_s=1_000)
    key = await platform.key(REQUESTS)
    asking = asyncio.create_task(ask(platform.running.port, asked(key, model, 8, stream=stream), None, None))
    await platform.engines[model].wait(requests=1)
    await left(asking)
    [row] = await platform.rows(key)
    assert charged(row) == (PROMPT_TOKENS, 0, True)
    assert (row["finish"], row["outcome"]) == ("client_gone", "exact" if model in FINAL_COUNT else "lower_bound")
    assert row["cached_tokens"] == (CACHED_TOKENS if model in FINAL_COUNT else 0)
    assert await platform.left(key) == (REQUESTS - 1, PROMPT_TOKENS)


async def left(asking: asyncio.Task[Customer]) -> None:
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_who_leaves_the_queue_owes_nothing(platform: Dialects) -> None:
    await platform.script(ttft_s=1_000)
    others, key = await platform.key(), await platform.key(REQUESTS)
    port = platform.running.port
    running = [asyncio.create_task(ask(port, asked(others, EMBEDDED, 8), None, None)) for _ in range(PLACES)]
    await platform.engines[EMBEDDED].wait(requests=PLACES)
    waiting = asyncio.create_task(ask(port, asked(key, EMBEDDED, 8), None, None))
    await platform.queued(EMBEDDED, requests=1)
    await left(waiting)
    for one in running:
        await left(one)
    [row] = await platform.rows(key, least=1)
    assert charged(row) == (0, 0, False)
    assert (row["finish"], row["outcome"], row["replica_id"]) == ("not_placed", "exact", None)
    assert await platform.left(key) == (REQUESTS, 0)


@every_dialect
async def test_an_answer_left_before_its_last_event_is_billed_as_far_as_it_was_read(
    platform: Dialects, model: str
) -> None:
    """Every token read, and none paid for: the engine was asked for 400 and the finish was never waited for."""
    await platform.script(model, hang_after_tokens=400)
    key = await platform.key(REQUESTS)
    request = asked(key, model, 401)
    # the first event has no token
    customer = await ask(platform.running.port, request, 401, None)
    assert customer.ended.result() is End.LEFT
    [row] = await platform.rows(key)
    assert charged(row) == (PROMPT_TOKENS, 400, True)
    assert row["finish"] == "client_gone"
    assert row["outcome"] == ("exact" if model in FINAL_COUNT else "lower_bound")
    assert await platform.left(key) == (REQUESTS - 1, PROMPT_TOKENS + 400)


@streamed_or_not
@pytest.mark.parametrize(
    ("status", "code", "counts"),
    [(400, "engine_refused", True), (500, "engine_failed", True), (503, "overloaded", False)],
)
@every_dialect
async def test_what_an_engine_turns_away_is_not_billed(
    platform: Dialects, model: str, stream: bool, status: int, code: str, counts: bool
) -> None:
    """It counts in the limits all the same, unless the engine was full."""
    key = await platform.key(REQUESTS)
    await platform.script(model, status=status)
    customer = await answered(platform, key, model, stream=stream)
    await platform.script(model)
    assert b'"code":"%b"' % code.encode() in customer._whole
    rows = await platform.rows(key)
    assert [charged(row) for row in rows] == [(0, 0, False)] * len(rows)
    assert {(row["error_code"], row["outcome"]) for row in rows} <= {(code, "exact"), ("no_engine_available", "exact")}
    assert await platform.left(key) == ((REQUESTS - 1, PROMPT_TOKENS) if counts else (REQUESTS, 0))
    await until_served(platform, model)


async def until_served(platform: Dialects, model: str) -> None:
    """What failed may be looked at again first."""
    key = await platform.key()

    async def served() -> bool:
        return (await answered(platform, key, model)).ended.result() is not End.REFUSED

    await eventually(served)


@streamed_or_not
@every_dialect
async def test_a_refusal_on_the_way_is_billed_and_is_no_fault_of_the_engine(
    platform: Dialects, model: str, stream: bool
) -> None:
    """A grammar that runs into its limits some tokens in: ten of them must not take the replica from anybody."""
    await platform.script(model, error_after_tokens=3, error_code=400)
    key, other = await platform.key(), await platform.key()
    for _ in range(10):
        customer = await answered(platform, key, model, stream=stream)
        assert b'"code":"engine_refused"' in customer._whole + customer._tail
        assert customer.status == (200 if stream else 400)
    await platform.script(model)
    assert (await answered(platform, other, model)).ended.result() is End.ANSWERED
    rows = await platform.rows(key)
    assert [charged(row) for row in rows] == 10 * [(PROMPT_TOKENS, 3, True)]
    assert {(row["finish"], row["error_code"]) for row in rows} == {("engine_error", "engine_refused")}
    assert (await platform.left(key))[1] == 10 * (PROMPT_TOKENS + 3)


@streamed_or_not
@every_dialect
async def test_what_an_engine_breaks_off_is_billed_as_far_as_it_was_sent(
    platform: Dialects, model: str, stream: bool
) -> None:
    await platform.script(model, error_after_tokens=3)
    key = await platform.key(REQUESTS)
    await answered(platform, key, model, stream=stream)
    await platform.script(model)
    [row] = await platform.rows(key)
    assert charged(row) == (PROMPT_TOKENS, 3, stream)
    assert (row["finish"], row["outcome"], row["error_code"]) == ("engine_error", "lower_bound", "engine_failed")
    assert await platform.left(key) == (REQUESTS - 1, PROMPT_TOKENS + 3)
    await until_served(platform, model)


@streamed_or_not
@every_dialect
async def test_an_engine_that_never_counts_is_counted_for(platform: Dialects, model: str, stream: bool) -> None:
    await platform.script(model, usage=False)
    key = await platform.key(REQUESTS)
    more = {"stream_options": {"include_usage": True}} if stream else {}
    customer = await answered(platform, key, model, stream=stream, **more)
    assert customer.ended.result() is End.ANSWERED
    [row] = await platform.rows(key)
    assert charged(row) == (PROMPT_TOKENS, 8, True)
    assert (row["finish"], row["outcome"]) == ("complete", "lower_bound")
    assert await platform.left(key) == (REQUESTS - 1, PROMPT_TOKENS + 8)


@streamed_or_not
@every_dialect
async def test_cached_tokens_are_told_and_priced_only_where_caches_are_kept_apart(
    platform: Dialects, model: str, stream: bool
) -> None:
    key = await platform.key()
    more = {"stream_options": {"include_usage": True}} if stream else {}
    request = asked(key, model, 8, stream=stream, **more).partition(b"\r\n\r\n")[2]
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {key.secret}"}) as session,
        session.post(f"{platform.running.url}/v1/chat/completions", data=request) as response,
    ):
        body = await response.read()
    cached = 0 if model == PLAIN else CACHED_TOKENS
    assert b'"cached_tokens":%d' % cached in body
    [row] = await platform.rows(key)
    assert (row["prompt_tokens"], row["cached_tokens"]) == (PROMPT_TOKENS, cached)
    [record] = await platform.engines[model].recorded()
    assert ("cache_salt" in record["body"]) == (model != PLAIN)
    options = record["body"]["stream_options"]
    assert options == {"include_usage": True, **({} if model == PLAIN else {"continuous_usage_stats": True})}


def test_a_pool_that_may_share_caches_is_named_when_the_gateway_starts(platform: Dialects) -> None:
    log = platform.running.log("gateway-1")
    assert "pools.plain: the engines may share prefix caches" in log
    for name in (*FINAL_COUNT, TELLING):
        assert f"pools.{name}:" not in log
