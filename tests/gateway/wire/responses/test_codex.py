"""A turn of Codex CLI 0.171 as it was recorded, its texts and ids replaced."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.generation import ChatPrompt
from tests.gateway.wire.responses.answers import Json, accumulated, call, event, prepared, streamed

RECORDED = Path(__file__).with_name("codex_turn.json")


def turn() -> Json:
    body: Json = msgspec.json.decode(RECORDED.read_bytes())
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


async def test_it_gets_the_calls_of_its_tools_under_their_names() -> None:
    engine = [
        event(call(0, '{"cmd":"ls"}', "exec_command", "a")),
        event(call(1, '{"target":"x"}', "multi_agent_v1__close_agent", "b")),
        event({}, "tool_calls"),
    ]
    one, other = accumulated(await streamed(engine, **turn())).output
    assert (one.name, one.namespace) == ("exec_command", None)
    assert (other.name, other.namespace) == ("close_agent", "multi_agent_v1")
