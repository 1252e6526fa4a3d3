"""Mistral's shape: requests as its clients and Continue send them, answers as they read them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, InvalidKey, UnknownField, UnsupportedField
from contracts.generation import TextPrompt
from engines.drivers.error_bodies import engine_error
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.mistral.format import FimFormat
from gateway.wire.prepared import Prepared
from gateway.wire.usage_tracker import UsageTracker
from tests.gateway.wire.openai.preparing import CALLER, MODELS, target

CODE = Tokenizer.load(MODELS / "slipstream-code")
FORMAT = FimFormat(RequestConfig())
CONTINUE = {
    "model": "m",
    "prompt": "def add(a, b):\n    return ",
    "suffix": "\n\n\nprint(add(1, 2))\n",
    "max_tokens": 30,
    "temperature": 0.01,
    "top_p": 0.9,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "stop": ["\n\n", "/src/", "#- coding: utf-8", "```", "t.", "\nt", "<file_sep>", "<|endoftext|>"],
    "stream": True,
}
"""As Continue's `_streamFim` writes it."""
CHUNKS = (
    b'data: {"id":"e","object":"text_completion","created":5,"model":"x","choices":[{"index":0,"text":"a +",'
    b'"finish_reason":null}]}\n\n'
    b'data: {"id":"e","object":"text_completion","created":5,"model":"x","choices":[{"index":0,"text":" b",'
    b'"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"e","object":"text_completion","created":5,"model":"x","choices":[],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}\n\ndata: [DONE]\n\n'
)


async def prepare(body: dict[str, Any]) -> Prepared:
    asked = FORMAT.decode(msgspec.json.encode(body))
    return await FORMAT.prepare(asked, "req_1", CALLER, "salt", target(CODE, context_tokens=400))


async def test_what_continue_sends_is_asked_of_the_engine() -> None:
    prepared = await prepare(CONTINUE)

    generation = prepared.generation
    assert isinstance(generation.prompt, TextPrompt)
    assert generation.prompt.prompts == (tuple(CODE.fill_ids(str(CONTINUE["prompt"]), str(CONTINUE["suffix"]))),)
    assert generation.stream
    assert generation.sampling.max_tokens == 30
    assert generation.sampling.stop == tuple(CONTINUE["stop"])  # type: ignore[arg-type]
    assert generation.sampling.frequency_penalty == 0


async def test_mistrals_own_fields_are_understood() -> None:
    body = {"model": "m", "prompt": "x = ", "random_seed": 7, "min_tokens": 0, "stop": "\n", "metadata": {"a": 1}}
    prepared = await prepare(body)

    assert prepared.generation.sampling.seed == 7
    assert prepared.generation.sampling.stop == ("\n",)
    assert prepared.generation.prompt == TextPrompt((tuple(CODE.fill_ids("x = ", "")),), filled_gap=True)
    assert not prepared.generation.stream


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("min_tokens", 21, InvalidField),
        ("stop", ["x"] * 17, InvalidField),
        ("max_tokens", 0, InvalidField),
        ("random_sead", 1, UnknownField),
    ],
)
async def test_what_is_not_served_is_refused_by_name(field: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        await prepare({"model": "m", "prompt": "x", field: value})
    assert refused.value.param == field  # type: ignore[attr-defined]


async def test_a_least_length_is_asked_of_engines_that_have_it() -> None:
    body = {"model": "m", "prompt": "x = ", "min_tokens": 5}
    assert (await prepare(body)).generation.sampling.min_tokens == 5
    assert (await prepare({**body, "min_tokens": 0})).generation.sampling.min_tokens == 0
    asked = FORMAT.decode(msgspec.json.encode(body))
    with pytest.raises(UnsupportedField) as refused:
        await FORMAT.prepare(asked, "req_1", CALLER, "salt", target(CODE, "openai", context_tokens=400))
    assert refused.value.param == "min_tokens"


async def test_a_stream_has_deltas_then_the_reason_and_the_usage() -> None:
    prepared = await prepare(CONTINUE)
    relay = FORMAT.transcoder("req_1", prepared, UsageTracker(1), engine_error)

    first = relay.feed(CHUNKS[:150])
    rest = relay.feed(CHUNKS[150:])
    assert relay.complete
    sent = (first + rest + relay.finish()).decode()
    assert sent.endswith("data: [DONE]\n\n")
    events = [msgspec.json.decode(line.removeprefix("data: ")) for line in sent.split("\n\n")[:-2]]
    assert {(event["id"], event["object"], event["model"]) for event in events} == {
        ("cmpl-1", "chat.completion.chunk", "m")
    }
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": "a +"}
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == "a + b"
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["stop"]
    assert events[-1]["usage"] == {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


async def test_a_whole_answer_has_a_message() -> None:
    prepared = await prepare({**CONTINUE, "stream": False})
    collector = FORMAT.transcoder("req_1", prepared, UsageTracker(1), engine_error)

    assert collector.feed(CHUNKS) == b""
    answer = msgspec.json.decode(collector.finish())
    created = answer.pop("created")
    assert isinstance(created, int)
    assert answer == {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a + b", "tool_calls": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }


def test_a_key_is_taken_from_either_header() -> None:
    assert FORMAT.authorization({b"authorization": b"Bearer a", b"x-api-key": b"a"}) == b"Bearer a"
    for other in (b"Bearer a", b"Basic b"):
        with pytest.raises(InvalidKey, match="different keys"):
            FORMAT.authorization({b"authorization": other, b"x-api-key": b"b"})
    assert FORMAT.authorization({b"x-api-key": b"b"}) == b"Bearer b"
    assert FORMAT.authorization({}) == b""
