"""A client that is streamed to hears from the gateway within fifteen seconds, whatever it waits for; and until then a
failure is a status."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from openai import OpenAI

from contracts.errors import Overloaded
from contracts.lease import Lease, LeaseRequest
from contracts.usage import Finish
from gateway.serving.heartbeat import HEARTBEAT_S
from gateway.wire.config import RequestConfig
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.mistral.format import FimFormat
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import CHAT, COMPLETION, Harness, body, harness
from tests.gateway.serving.line_format import LineFormat
from tests.gateway.serving.stepped_engine import stepped_engine
from tests.gateway.serving.test_cascade import cascading
from tests.waiting import eventually

PROMISED_S = 15.0
COMMENT = b": waiting\n\n"
STREAM = body(stream=True)


class Queue:
    """A router that lets requests wait for a slot. Use `queue`."""

    def __init__(self, platform: Harness, passed: int) -> None:
        self._platform = platform
        self._acquire = platform.router.acquire
        self._passed = passed
        self.waiting = asyncio.Event()
        self._open = asyncio.Event()
        self.error: Exception | None = None
        platform.router.acquire = self._ask  # type: ignore[method-assign]

    async def _ask(self, ask: LeaseRequest) -> Lease:
        self._passed -= 1
        if self._passed < 0:
            self.waiting.set()
            await self._open.wait()
            if self.error is not None:
                raise self.error
        return await self._acquire(ask)

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self._open.set()


class Clock:
    """Sweeps as the gateway does, once a second."""

    def __init__(self, platform: Harness) -> None:
        self._platform = platform
        self._now_s = time.monotonic()

    def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self._now_s += 1
            self._platform.idle.sweep(self._now_s)


@contextlib.asynccontextmanager
async def queued(
    client: Client, asked: bytes = STREAM, wire_format: Any = CHAT, passed: int = 0, **settings: Any
) -> AsyncIterator[tuple[Harness, Queue, Clock, asyncio.Task[Any]]]:
    """A request that waits for a place. passed: so many places are given at once before."""
    async with harness(**settings) as platform:
        queue = Queue(platform, passed)
        task = asyncio.create_task(platform.serve(client, asked, wire_format))
        await queue.waiting.wait()
        yield platform, queue, Clock(platform), task
        queue.end()
        await task
        await platform.engines_idle()
        platform.require_balanced()


def without_comments(client: Client) -> bytes:
    return client.answer.body.replace(COMMENT, b"")


def read_by_openais_client(body: bytes) -> str:
    head = {"content-type": "text/event-stream; charset=utf-8"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=head, content=body))
    with (
        httpx2.Client(transport=transport) as http,
        OpenAI(base_url="http://x/v1", api_key="k", http_client=http) as sdk,
    ):
        stream = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


async def test_a_request_in_the_queue_gets_headers_and_comments_and_then_the_answer() -> None:
    client = Client()
    async with queued(client) as (platform, queue, clock, task):
        clock.pass_by(HEARTBEAT_S - 1)
        assert client.sent == b"", "a failure can still be a status"
        clock.pass_by(PROMISED_S - HEARTBEAT_S + 1)
        assert client.answer.status == 200
        assert client.answer.headers["content-type"].startswith("text/event-stream")
        assert {"x-request-id", "server-timing"} <= client.answer.headers.keys()
        assert client.answer.body == COMMENT
        clock.pass_by(45)
        assert client.answer.body.count(COMMENT) in range(4, 7)
        queue.end()
        request = await task
        answer = client.answer
        assert answer.complete
        assert without_comments(client).endswith(b"data: [DONE]\n\n")
        assert answer.body.startswith(COMMENT)
        assert answer.body.rfind(COMMENT) < answer.body.find(b"data: "), "and none behind what came at once"
        assert len(platform.router.first_tokens) == 1
        assert read_by_openais_client(answer.body) == " t0 t1 t2 t3"
        assert request.clock.first_token_s is not None


async def test_a_refusal_by_the_queue_is_a_status_before_the_headers_and_an_event_behind_them() -> None:
    for waited_s, early in ((HEARTBEAT_S - 1, True), (PROMISED_S, False)):
        client = Client()
        async with queued(client) as (platform, queue, clock, task):
            clock.pass_by(waited_s)
            queue.end(Overloaded("All places are taken.", retry_after_s=3))
            await task
            answer = client.answer
            assert answer.complete
            assert platform.journal.records[0].finish is Finish.NOT_PLACED
            labels = {"tier": "chat", "endpoint": "chat", "code": "overloaded", "over_share": "false"}
            assert platform.sample("slipstream_requests_total", status=str(answer.status), **labels) == 1
            if early:
                assert (answer.status, answer.headers["retry-after"]) == (503, "3")
                assert answer.json["error"]["code"] == "overloaded"
            else:
                assert answer.status == 200
                payload = without_comments(client).removeprefix(b"data: ").removesuffix(b"\n\n")
                assert msgspec.json.decode(payload)["error"]["code"] == "overloaded"


async def test_another_engine_is_tried_behind_the_headers() -> None:
    client = Client()
    async with harness() as platform:
        queue = Queue(platform, passed=1)
        platform.engines[0].control(b'{"status": 500}')
        task = asyncio.create_task(platform.serve(client, STREAM))
        await queue.waiting.wait()
        Clock(platform).pass_by(PROMISED_S)
        assert client.answer.body == COMMENT
        queue.end()
        await task
        assert without_comments(client).endswith(b"data: [DONE]\n\n")
        assert [(record.finish, record.billed) for record in platform.journal.records] == [
            (Finish.ENGINE_ERROR, False),
            (Finish.COMPLETE, True),
        ]
        await platform.engines_idle()
        platform.require_balanced()


async def test_an_engine_that_is_silent_before_and_between_its_texts() -> None:
    client = Client()
    async with stepped_engine() as (engine, place), harness(engines=0) as platform:
        platform.router.engines = (place,)
        task = asyncio.create_task(platform.serve(client, STREAM))
        await eventually(lambda: engine.asked)
        clock = Clock(platform)
        clock.pass_by(PROMISED_S)
        assert client.answer.body == COMMENT
        await engine.say("a")
        await client.reads(b'"a"')
        clock.pass_by(HEARTBEAT_S - 1)
        assert client.answer.body.count(COMMENT) == 1
        clock.pass_by(PROMISED_S - HEARTBEAT_S + 1)
        assert client.answer.body.endswith(COMMENT)
        assert client.answer.body.count(COMMENT) == 2
        await engine.say("b", ends=True, tokens=2)
        request = await task
        assert request.timing is not None
        assert request.timing.arrivals == 2, "a comment is no token"
        assert without_comments(client).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("wire_format", "asked"),
    [
        (COMPLETION, {"prompt": "a"}),
        (COMPLETION, {"prompt": "a", "suffix": "b", "min_confidence": 0.5}),
        (FimFormat(RequestConfig()), {"prompt": "a", "suffix": "b"}),
        (InfillFormat(RequestConfig()), {"input_prefix": "a", "input_suffix": "b"}),
        (LlamaCompletionFormat(RequestConfig()), {"prompt": "a"}),
        (LlamaCompletionFormat(RequestConfig()), {"prompt": "a", "n_cmpl": 2}),
    ],
)
async def test_streams_of_every_format_and_no_answer_that_is_whole(wire_format: Any, asked: dict[str, Any]) -> None:
    for stream in (True, False):
        client = Client()
        asked_for = msgspec.json.encode({"model": "m", "stream": stream, **asked})
        async with queued(client, asked_for, wire_format, driver="embedded") as (_, queue, clock, task):
            clock.pass_by(PROMISED_S)
            assert client.sent.endswith(COMMENT + b"\r\n") if stream else client.sent == b""
            queue.end()
            await task
            assert (client.answer.status, client.answer.complete) == (200, True)
            assert client.answer.body.count(COMMENT) == stream


async def test_a_format_without_comments_is_silent_until_its_first_line() -> None:
    client = Client()
    async with queued(client, b'{"text": "a", "lines": true}', LineFormat()) as (_, queue, clock, task):
        clock.pass_by(100)
        assert client.sent == b""
        queue.end()
        await task
        assert client.answer.status == 200


async def test_a_client_that_does_not_read_is_sent_no_comments() -> None:
    client = Client()
    async with queued(client) as (_, _, clock, _):
        clock.pass_by(PROMISED_S)
        client.stop_reading()
        clock.pass_by(25)
        assert client.answer.body == COMMENT
        client.read_on()


async def test_the_head_names_the_model_that_answers_once_that_is_known() -> None:
    async with cascading() as to:
        to.script(small={"status": 500})
        queue = Queue(to.platform, passed=1)
        client = Client()
        task = asyncio.create_task(to.serve(STREAM, client))
        await queue.waiting.wait()
        Clock(to.platform).pass_by(PROMISED_S)
        assert client.answer.headers["x-slipstream-answered-by"] == "big"
        queue.end()
        await task
        assert client.sent.count(b"x-slipstream-answered-by") == 1
        assert to.rows[-1] == ("big", Finish.COMPLETE, None, True)


async def test_a_kept_answer_of_the_small_model_follows_behind_comments() -> None:
    async with cascading() as to:
        queue = Queue(to.platform, passed=0)
        client = Client()
        task = asyncio.create_task(to.serve(STREAM, client))
        await queue.waiting.wait()
        Clock(to.platform).pass_by(PROMISED_S)
        queue.end()
        await task
        assert client.sent.count(b"HTTP/1.1 200") == 1
        assert b"x-slipstream-answered-by" not in client.sent, "nobody knew when the head left"
        assert to.outcomes() == {"kept": 1}
        assert without_comments(client).endswith(b"data: [DONE]\n\n")


async def test_a_follower_gets_comments_and_its_answer_when_the_generation_ends_early() -> None:
    leader, client = Client(), Client()
    fields = {"model": "m", "prompt": "a", "suffix": "b", "temperature": 0, "stream": True}
    asked = msgspec.json.encode(fields)
    async with harness(engines=1, driver="embedded") as platform:
        queue = Queue(platform, passed=0)
        first = asyncio.create_task(platform.serve(leader, asked, COMPLETION))
        await queue.waiting.wait()
        second = asyncio.create_task(platform.serve(client, asked, COMPLETION))
        await eventually(lambda: len(platform.limiter.reserved) == 2)
        Clock(platform).pass_by(PROMISED_S)
        assert client.answer.body == COMMENT
        leader.leave()
        await first
        queue.end()
        await second
        assert without_comments(client).endswith(b"data: [DONE]\n\n")
        assert platform.sample("slipstream_generations_reused_total", tier="chat", kind="abandoned") == 1
        await platform.engines_idle()
        platform.require_balanced()
