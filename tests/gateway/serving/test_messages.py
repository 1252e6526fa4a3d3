"""Anthropic's Messages over the whole pipeline: one request is streamed, refused, billed and counted like any other."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from contracts.errors import InsufficientQuota, Overloaded, RateLimited
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.loop_shares import REFUSAL_S, UNSERVED_BURST_S, LoopShares
from gateway.limits.levels import Level
from gateway.limits.plan import NO_LIMIT, Plan, PlannedRule
from gateway.limits.rate_state import RateState
from gateway.serving.body_room import BodyRoom
from gateway.serving.heartbeat import HEARTBEAT_S
from gateway.serving.token_count import TOKEN_S, TokenCountEndpoint
from gateway.wire.anthropic.schema import CountTokensRequest
from gateway.wire.config import RequestConfig
from tests.gateway.served import served
from tests.gateway.serving.client import Client
from tests.gateway.serving.doors import KEY, Doors
from tests.gateway.serving.harness import harness
from tests.gateway.wire.anthropic.asking import (
    CHAT_MODEL,
    COUNT_TOKENS,
    MESSAGES,
    TOOL,
    accumulated,
    asked,
    events_of,
)
from tests.waiting import eventually

WHOLE, STREAM = msgspec.json.encode(asked()), msgspec.json.encode(asked(stream=True))
CALLING = msgspec.json.encode(asked(stream=True, tools=[TOOL]))


async def test_a_stream_and_a_whole_answer_say_the_same_and_cost_the_same() -> None:
    async with harness(tokenizer=CHAT_MODEL) as platform:
        platform.script(tokens=4, prompt_tokens=7, cached_tokens=5)
        messages = []
        for body in (WHOLE, STREAM):
            client = Client()
            await platform.serve(client, body, MESSAGES)
            answer = client.answer
            message = answer.json if body is WHOLE else accumulated(answer.body)
            assert message.pop("id") == "msg_" + answer.headers["request-id"].removeprefix("req_")
            messages.append(message)
        assert messages[0] == messages[1]
        assert messages[0]["content"] == [{"type": "text", "text": " t0 t1 t2 t3"}]
        assert messages[0]["usage"] | {"output_tokens_details": None} == {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 4,
            "output_tokens_details": None,
        }
        for record in platform.journal.records:
            assert (record.opened.endpoint, record.billed, record.usage.prompt_tokens) == ("messages", True, 7)
        platform.require_balanced()


async def test_a_streamed_call_has_its_whole_arguments() -> None:
    async with harness() as platform:
        platform.script(tool="look", texts=['{"at"', ":", '"x"}'], tokens=3)
        client = Client()
        await platform.serve(client, CALLING, MESSAGES)
        message = accumulated(client.answer.body)
        assert message["content"] == [{"type": "tool_use", "id": "call_0", "name": "look", "input": {"at": "x"}}]
        assert message["stop_reason"] == "tool_use"


async def test_a_stream_that_breaks_off_ends_with_anthropics_error() -> None:
    async with harness() as platform:
        platform.script(die_after_tokens=2)
        client = Client()
        await platform.serve(client, STREAM, MESSAGES)
        *_, last = events_of(client.answer.body)
        assert (last["type"], last["error"]["type"]) == ("error", "api_error")
        assert last["request_id"] == client.answer.headers["request-id"]
        platform.require_balanced()


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Overloaded("full", retry_after_s=3), 529, "overloaded_error"),
        (RateLimited("slow down", retry_after_s=3), 429, "rate_limit_error"),
        (InsufficientQuota("no credit", retry_after_s=3), 429, "billing_error"),
    ],
)
async def test_a_refusal_has_anthropics_status_type_and_delay(error: Any, status: int, kind: str) -> None:
    async with harness() as platform:
        platform.faults.raises["reserve"] = error
        client = Client()
        await platform.serve(client, STREAM, MESSAGES)
        answer = client.answer
        assert (answer.status, answer.json["error"]["type"]) == (status, kind)
        assert answer.json["request_id"] == answer.headers["request-id"]
        assert answer.headers["retry-after"] == "3"


async def test_limits_are_told_in_anthropics_headers() -> None:
    rule = PlannedRule(Level.KEY, "k", None, "rate", "key", (60, *[NO_LIMIT] * 6))
    state = RateState(Plan("o", "", (rule,)), (59 * 60_000, *[0] * 6), 1_700_000_000_000)
    async with harness(state=state) as platform:
        client = Client()
        await platform.serve(client, STREAM, MESSAGES)
        told = {name: value for name, value in client.answer.headers.items() if name.startswith("anthropic-")}
        assert told == {
            "anthropic-ratelimit-requests-limit": "60",
            "anthropic-ratelimit-requests-remaining": "59",
            "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:21Z",
        }


async def test_a_silent_stream_hears_pings() -> None:
    async with harness(engines=1) as platform:
        platform.script(hang=True)
        client = Client()
        serving = asyncio.create_task(platform.serve(client, STREAM, MESSAGES))
        await eventually(lambda: bool(platform.idle._waits))
        (wait,) = platform.idle._waits
        await eventually(lambda: wait.heartbeat is not None)
        assert wait.heartbeat is not None
        wait.heartbeat.sweep(wait.heartbeat._quiet_since_s + HEARTBEAT_S)
        await client.reads(b'event: ping\ndata: {"type":"ping"}\n\n')
        client.leave()
        await serving


def counting(doors: Doors, shares: LoopShares) -> TokenCountEndpoint[CountTokensRequest]:
    config = RequestConfig()
    return TokenCountEndpoint(
        doors,  # type: ignore[arg-type]
        COUNT_TOKENS,
        Scope.CHAT,
        100_000,
        config,
        shares,
        BodyRoom(config.organization_body_bytes),
    )


async def test_a_count_generates_nothing_and_is_paced_like_a_refusal() -> None:
    doors, shares = Doors(), LoopShares(lambda: 0.0)
    body = {name: value for name, value in asked(tools=[TOOL]).items() if name != "max_tokens"}
    async with served(counting(doors, shares)) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/v1/messages/count_tokens"
        async with session.post(url, json=body, headers={"x-api-key": "k"}) as response:
            assert (response.status, list(await response.json())) == (200, ["input_tokens"])
            assert "request-id" in response.headers
        for _ in range(round(UNSERVED_BURST_S / REFUSAL_S) - 1):
            assert shares.unserved.free(KEY.caller.organization_id)
            shares.unserved.spend(KEY.caller.organization_id, REFUSAL_S)
        assert not shares.unserved.free(KEY.caller.organization_id)
        shares.unserved.spend(KEY.caller.organization_id, -UNSERVED_BURST_S)
        async with session.post(url, json={**body, "max_tokens": 5}, headers={"x-api-key": "k"}) as response:
            assert (response.status, (await response.json())["type"]) == (400, "error")
        doors.key = KeyRecord(KEY.caller, KEY.levels, scopes=frozenset({Scope.COMPLETIONS}))
        async with session.post(url, json=body, headers={"x-api-key": "k"}) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (403, "permission_error")
        two = {"x-api-key": "k", "authorization": "Bearer other"}
        async with session.post(url, json=body, headers=two) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (401, "authentication_error")
    assert doors.answered("none") == 1


async def test_a_long_count_costs_its_organization_more() -> None:
    """Thousands of small messages are prepared on the loop, for tens of milliseconds."""
    doors, shares = Doors(), LoopShares(lambda: 0.0)
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 90_000}]}
    async with served(counting(doors, shares)) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/v1/messages/count_tokens"
        async with session.post(url, json=body, headers={"x-api-key": "k"}) as response:
            tokens = (await response.json())["input_tokens"]
    shares.unserved.spend(KEY.caller.organization_id, UNSERVED_BURST_S - REFUSAL_S - TOKEN_S * tokens / 2)
    assert not shares.unserved.free(KEY.caller.organization_id)
