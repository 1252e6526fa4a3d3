"""Requests in Anthropic's shape, prepared as the gateway does, and answers made of engines' chunks."""

from __future__ import annotations

from typing import Any

import msgspec

from engines.drivers.error_bodies import engine_error
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.anthropic.format import CountTokensFormat, MessagesFormat
from gateway.wire.config import RequestConfig
from gateway.wire.format import Transcoder
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker
from tests.gateway.wire.openai.preparing import CALLER, MODELS, target

CHAT_MODEL = Tokenizer.load(MODELS / "slipstream-chat")
MESSAGES, COUNT_TOKENS = MessagesFormat(RequestConfig()), CountTokensFormat(RequestConfig())
HI = [{"role": "user", "content": "hi"}]
TOOL = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}


def where(driver: str = "embedded", **model: Any) -> Target:
    """A model with the shipped chat tokenizer."""
    return target(CHAT_MODEL, driver, **{"context_tokens": 2_000, **model})


def asked(messages: Any = HI, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 50, "messages": messages, **fields}


async def prepare(messages: Any = HI, of: Target | None = None, **fields: Any) -> Prepared:
    request = MESSAGES.decode(msgspec.json.encode(asked(messages, **fields)))
    return await MESSAGES.prepare(request, "req_1", CALLER, "salt", of or where())


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One event of an engine. fields: of its choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **fields}
    body = {"id": "e", "object": "chat.completion.chunk", "created": 5, "model": "x", "choices": [choice]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def usage_chunk(prompt: int, completion: int, cached: int = 0, written: int = 0) -> bytes:
    """The last event before [DONE]."""
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
    }
    body = {"id": "e", "object": "chat.completion.chunk", "created": 5, "model": "x", "choices": [], "usage": usage}
    return b"data: " + msgspec.json.encode(body) + b"\n\ndata: [DONE]\n\n"


def transcoder(prepared: Prepared, *, stream: bool) -> Transcoder:
    generation = msgspec.structs.replace(prepared.generation, stream=stream)
    return MESSAGES.transcoder(
        "req_1", msgspec.structs.replace(prepared, generation=generation), UsageTracker(1), engine_error
    )


def streamed(prepared: Prepared, *data: bytes) -> bytes:
    """The whole of a streamed answer."""
    relay = transcoder(prepared, stream=True)
    sent = b"".join(relay.feed(one) for one in data)
    assert relay.complete or relay.satisfied
    return sent + relay.finish()


def whole(prepared: Prepared, *data: bytes) -> Any:
    """The answer that is not streamed."""
    collector = transcoder(prepared, stream=False)
    assert b"".join(collector.feed(one) for one in data) == b""
    return msgspec.json.decode(collector.finish())


def events_of(sent: bytes) -> list[Any]:
    """The events of a stream, whose names are their types. Comments and pings are none."""
    events = []
    for frame in sent.split(b"\n\n"):
        if frame:
            name, data = frame.split(b"\n")
            event = msgspec.json.decode(data.removeprefix(b"data: "))
            assert name == b"event: " + event["type"].encode()
            events.append(event)
    return [event for event in events if event["type"] != "ping"]


def accumulated(sent: bytes) -> Any:
    """The message that a client makes of a stream. Fails on an order that Anthropic does not document."""
    events = events_of(sent)
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message = events[0]["message"]
    arguments: dict[int, str] = {}
    is_open = None
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert is_open is None
                is_open = event["index"]
                assert is_open == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                kind = delta["type"].removesuffix("_delta")
                if kind == "input_json":
                    assert block["type"] == "tool_use"
                    arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
                else:
                    block[kind] += delta[kind]
            case "content_block_stop":
                assert is_open == event["index"]
                is_open = None
            case other:
                raise AssertionError(other)
    assert is_open is None
    for index, text in arguments.items():
        message["content"][index]["input"] = msgspec.json.decode(text)
    last = events[-2]
    return {**message, **last["delta"], "usage": {**message["usage"], **last["usage"]}}
