"""Second requests of coding agents that speak chat completions, as recorded from OpenCode 1.18.33 and Qwen Code 0.24.4.

All fields, tools and schemas are theirs; texts, names and ids are ours. OpenAI's own library judges the answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from engines.drivers import registry as drivers
from engines.drivers.error_bodies import engine_error
from gateway.wire.session import Session, session_of
from gateway.wire.usage_tracker import UsageTracker
from tests.gateway.wire.anthropic.asking import chunk, usage_chunk
from tests.gateway.wire.openai.preparing import chat, target
from tests.gateway.wire.openai.test_tool_loops import CHAT

CLIENTS = ["opencode", "qwen_code"]
SESSIONS = {"opencode": Session("ses_recorded"), "qwen_code": None}


def recorded(client: str) -> Any:
    return msgspec.json.decode((Path(__file__).parent / "fixtures" / f"{client}.json").read_bytes())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm", "tensorrt_llm", "openai"])
async def test_their_requests_reach_engines_of_every_driver(driver: str, client: str) -> None:
    body = recorded(client)["body"]
    made = await chat(target(None, driver, context_tokens=100_000), **body)
    sent = msgspec.json.decode(drivers.get(driver).generate(made.generation, "m").body)
    assert [tool["function"]["name"] for tool in sent["tools"]] == [each["function"]["name"] for each in body["tools"]]
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][2]["tool_calls"] == body["messages"][2]["tool_calls"]
    assert sent["max_tokens"] == 32_000


@pytest.mark.parametrize("client", CLIENTS)
async def test_openais_accumulator_makes_the_call_of_a_stream(client: str) -> None:
    """Their libraries read streams as OpenAI's does."""
    seen = recorded(client)
    headers = {name.encode(): value.encode() for name, value in seen["headers"].items()}
    assert session_of(headers) == SESSIONS[client]
    made = await chat(target(None, "vllm", context_tokens=100_000), **seen["body"])
    name = seen["body"]["messages"][2]["tool_calls"][0]["function"]["name"]
    relay = CHAT.relay("req_1", made, UsageTracker(1), engine_error)
    head = {"index": 0, "id": "call_2", "type": "function", "function": {"name": name, "arguments": ""}}
    calls = [head, *({"index": 0, "function": {"arguments": part}} for part in ('{"command":', '"ls"}'))]
    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"tool_calls": [call]}) for call in calls)]
    ends = [chunk({}, "tool_calls"), usage_chunk(5, 3), b"data: [DONE]\n\n"]
    sent = b"".join(relay.feed(event) for event in [*events, *ends])
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for frame in (sent + relay.finish()).split(b"\n\n"):
        if frame.startswith(b"data: {"):
            state.handle_chunk(ChatCompletionChunk.model_validate_json(frame.removeprefix(b"data: ")))
    answer = state.get_final_completion()
    [call] = answer.choices[0].message.tool_calls or []
    assert (answer.choices[0].finish_reason, call.id, call.function.name) == ("tool_calls", "call_2", name)
    assert call.function.arguments == '{"command":"ls"}'
    assert answer.usage is not None
    assert answer.usage.total_tokens == 8
