"""A turn of Codex CLI 0.171 as it was recorded, its texts and ids replaced."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contracts.generation import ChatPrompt
from gateway.wire.responses.decode import RequestDecoder
from gateway.wire.responses.schema import ResponsesRequest
from tests.gateway.wire.responses.answers import Json, accumulated, call, event, prepared, streamed


def turn(name: str = "codex_turn") -> Json:
    body: Json = msgspec.json.decode(Path(__file__).with_name(f"{name}.json").read_bytes())
    return body


async def test_a_turn_is_taken_whole() -> None:
    made = await prepared(**turn())
    prompt = made.generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert [message["role"] for message in prompt.messages] == ["system", "user", "user", "assistant", "tool"]
    assert prompt.tools is not None
    names = [tool["function"]["name"] for tool in prompt.tools]
    assert names[0] == "exec_command"
    assert "multi_agent_v1__spawn_agent" in names
    assert not [name for name in names if "web_search" in name]
    assert made.session == turn()["prompt_cache_key"]


@pytest.mark.parametrize("name", ["codex_turn", "codex_patch_turn"])
def test_the_stored_request_of_a_background_response_is_the_same_request(name: str) -> None:
    body = {**turn(name), "stream": None, "background": True, "store": True, "min_p": 0.1}
    decoder = RequestDecoder(ResponsesRequest)
    request = decoder.decode(msgspec.json.encode(body))
    assert decoder.decode(msgspec.json.encode(request)) == request


async def test_it_gets_the_calls_of_its_tools_under_their_names() -> None:
    engine = [
        event(call(0, '{"cmd":"ls"}', "exec_command", "a")),
        event(call(1, '{"target":"x"}', "multi_agent_v1__close_agent", "b")),
        event({}, "tool_calls"),
    ]
    one, other = accumulated(await streamed(engine, **turn())).output
    assert (one.name, one.namespace) == ("exec_command", None)
    assert (other.name, other.namespace) == ("close_agent", "multi_agent_v1")


async def test_a_patch_is_the_text_of_a_custom_tool_there_and_back() -> None:
    """With metadata by which Codex offers `apply_patch` as a custom tool with a grammar."""
    patching = turn("codex_patch_turn")
    prompt = (await prepared(**patching)).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    [called] = [message for message in prompt.messages if message.get("tool_calls")]
    arguments = msgspec.json.decode(called["tool_calls"][0]["function"]["arguments"])
    assert arguments["input"].startswith("*** Begin Patch")
    engine = [
        event(call(0, msgspec.json.encode(arguments).decode(), "apply_patch", "a")),
        event({}, "tool_calls"),
    ]
    [again] = accumulated(await streamed(engine, **patching)).output
    assert (again.type, again.name, again.input) == ("custom_tool_call", "apply_patch", arguments["input"])
