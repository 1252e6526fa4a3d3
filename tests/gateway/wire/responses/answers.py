"""Responses of the Responses API, made from an engine's events and judged by OpenAI's own SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import openai
from openai.types.responses import ResponseStreamEvent

from contracts.desired_state import Model
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from engines.drivers.error_bodies import engine_error
from gateway.wire.config import RequestConfig
from gateway.wire.prepared import Prepared, Target
from gateway.wire.responses.answer import Answer
from gateway.wire.responses.format import ResponsesFormat
from gateway.wire.usage_tracker import UsageTracker

FORMAT = ResponsesFormat(RequestConfig())
CALLER = Caller("o", "p", "k")
TARGET = Target(Model("m", Tier.CHAT, "pool", 100_000), drivers.get("sglang").capabilities, None)
RESPONSE_ID = "resp_0123"
USED = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 4}}

Json = dict[str, Any]


def event(delta: Json, finish_reason: str | None = None, **more: Any) -> bytes:
    """An engine's event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice], **more}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def call(index: int, arguments: str, name: str | None = None, id_: str | None = None) -> Json:
    """A chunk of a call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **({} if id_ is None else {"id": id_})}]}


async def prepared(target: Target = TARGET, **fields: Any) -> Prepared:
    """A request with these fields, as the engine gets it."""
    asked = FORMAT.decode(msgspec.json.encode({"model": "m", "input": "hi", **fields}))
    return await FORMAT.prepare(asked, "req_0123", CALLER, "salt", target)


async def answer(*, streams: bool, **fields: Any) -> Answer:
    """The transcoder of a request with these fields."""
    return Answer(RESPONSE_ID, await prepared(**fields), UsageTracker(1), engine_error, stream=streams)


async def streamed(events: Sequence[bytes], **fields: Any) -> bytes:
    """A whole stream."""
    made = await answer(streams=True, **fields)
    sent = b"".join(made.feed(each) for each in events)
    assert made.complete
    return sent + made.finish()


async def whole(events: Sequence[bytes], **fields: Any) -> Json:
    """A whole body."""
    made = await answer(streams=False, **fields)
    assert b"".join([made.feed(each) for each in events]) == b""
    body: Json = msgspec.json.decode(made.finish())
    return body


def client(body: bytes, kind: str = "text/event-stream") -> openai.OpenAI:
    """An SDK's client whose server has only this answer."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers={"content-type": kind}))
    http_client: Any = httpx.Client(transport=transport)
    return openai.OpenAI(api_key="k", base_url="http://slip", http_client=http_client)


def read(body: bytes) -> list[ResponseStreamEvent]:
    """The stream's events as the SDK reads them."""
    return list(client(body).responses.create(model="m", input="hi", stream=True))


def accumulated(body: bytes) -> Any:
    """The response as the SDK's helper puts it together."""
    with client(body).responses.stream(model="m", input="hi") as stream:
        return stream.get_final_response()
