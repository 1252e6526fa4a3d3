"""Fields of engines' own APIs: one that asks for nothing is taken, a least length is passed on, others are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, RequestError
from gateway.wire.openai.foreign_names import WITHOUT_EFFECT
from gateway.wire.openai.relay import Relay
from tests.gateway.wire.openai.preparing import chat, complete, target

ENGINE = target(None, "sglang")
WHOLE_REQUEST = {
    "functions": None, "function_call": None, "prediction": None, "verbosity": None, "top_k": None, "guided_json": None,
    "ignore_eos": False, "min_tokens": 0, "repetition_penalty": 1.0, "min_p": 0.0, "skip_special_tokens": True,
}  # fmt: skip


async def test_null_and_values_without_effect_are_taken_for_absent() -> None:
    plain = await chat(ENGINE)
    told = await chat(ENGINE, **WHOLE_REQUEST)

    assert told.generation == plain.generation
    messages = [{"role": "user", "content": "hi", "tool_calls": None, "reasoning": None, "name": None}]
    assert (await chat(ENGINE, messages, verbosity=None)).generation.prompt == plain.generation.prompt
    assert (await complete(ENGINE, best_of=1, top_k=-1, use_beam_search=False)).generation.sampling.n == 1
    function = {"name": "f", "parameters": {"type": "object", "default": None}}
    called: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    async def made(**null: None) -> Any:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", **null}, **null}
        texts = [{"type": "text", "text": "null", **null}, image]
        call = {**called, "function": {**called["function"], **null}, **null}
        turns: Any = [{"role": "user", "content": texts}, {"role": "assistant", "tool_calls": [call]}]
        tools: Any = [{"type": "function", "function": {**function, **null}, **null}]
        return await chat(ENGINE, turns, tools=tools)

    # `parsed_arguments` is null in the calls of OpenAI's own SDK
    assert (await made(parsed_arguments=None)).generation == (await made()).generation


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
async def test_the_same_field_with_another_value_is_still_refused_by_name(name: str) -> None:
    for ask in (chat, complete):
        with pytest.raises(RequestError) as refused:
            await ask(ENGINE, **{name: 7.5})
        assert refused.value.param == name


async def test_a_field_that_asks_for_something_is_refused_beside_one_that_does_not() -> None:
    with pytest.raises(RequestError) as refused:
        await chat(ENGINE, verbosity=None, guided_json={})
    assert refused.value.param == "guided_json"


async def test_a_least_length_reaches_the_engine() -> None:
    assert (await chat(ENGINE, min_tokens=5, max_tokens=9)).generation.sampling.min_tokens == 5
    assert (await chat(ENGINE, ignore_eos=True, max_tokens=9)).generation.sampling.min_tokens == 9
    assert (await complete(ENGINE, ignore_eos=True, max_tokens=9)).generation.sampling.min_tokens == 9
    with pytest.raises(InvalidField, match="at most 9 tokens"):
        await chat(ENGINE, min_tokens=10, max_tokens=9)


@pytest.mark.parametrize(("field", "value"), [("min_tokens", 5), ("ignore_eos", True)])
async def test_engines_without_a_least_length_refuse_it_by_name(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match="engines do not support") as refused:
        await chat(target(None, "openai"), **{field: value})
    assert refused.value.param == field


async def test_running_usage_is_told_in_every_event_where_it_is_asked_for() -> None:
    prepared = await chat(ENGINE, stream=True, stream_options={"continuous_usage_stats": True})
    assert (prepared.running_usage, prepared.generation.include_usage) == (True, True)
    relay = Relay("ours", "m", 1, include_usage=True, running_usage=True)

    def event(text: str, finish_reason: str | None, tokens: int) -> bytes:
        usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]}
        return b"data: " + msgspec.json.encode({**chunk, "usage": usage}) + b"\n\n"

    sent = b"".join(relay.feed(event(text, None, at)) for at, text in enumerate("abc", 1)) + relay.feed(
        event("", "stop", 3)
    )
    sent += relay.finish()

    payloads = [msgspec.json.decode(line[6:]) for line in sent.split(b"\n\n") if line and b"[DONE]" not in line]
    counts = [(each["usage"]["prompt_tokens"], each["usage"]["completion_tokens"]) for each in payloads]
    assert counts == [(3, 1), (3, 2), (3, 3), (3, 3), (3, 3)]
