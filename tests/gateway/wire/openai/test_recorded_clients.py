"""Requests of clients that speak chat completions, replayed through the whole pipeline.

Recorded from OpenCode 1.18.33, Qwen Code 0.24.4, aider 0.86.2, Continue's CLI 1.5.47 and Open WebUI 0.12.4 (a chat with
tools and the title of one); `zed_from_source` is written from the source of Zed's agent, because Zed is no package. All
fields, headers, tools and schemas are theirs (Open WebUI's: six tools of thirty); texts, names and ids are ours.
OpenAI's own library judges the answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engines.drivers import registry as drivers
from gateway.serving.request import Arrival, InferenceRequest
from gateway.wire.session import Session, session_of
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import KEY, harness
from tests.gateway.wire.openai.preparing import chat, target
from tests.gateway.wire.openai.test_tool_loops import CHAT

FIXTURES = Path(__file__).parent / "fixtures"
CLIENTS = sorted(file.stem for file in FIXTURES.iterdir())
SESSIONS = {"opencode": Session("ses_recorded")}
DEFAULT_TOKENS = 20


def recorded(client: str) -> Any:
    return msgspec.json.decode((FIXTURES / f"{client}.json").read_bytes())


def without_empty(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm", "tensorrt_llm", "openai", "llama_cpp"])
async def test_their_requests_reach_engines_of_every_driver(driver: str, client: str) -> None:
    body = recorded(client)["body"]
    made = await chat(target(None, driver, context_tokens=100_000), **body)
    sent = msgspec.json.decode(drivers.get(driver).generate(made.generation, "m").body)
    assert sent["messages"] == [without_empty(message) for message in body["messages"]]
    names = [[tool["function"]["name"] for tool in each.get("tools", ())] for each in (sent, body)]
    assert names[0] == names[1]
    assert sent["max_tokens"] == body.get("max_tokens", body.get("max_completion_tokens", DEFAULT_TOKENS))


@pytest.mark.parametrize("client", CLIENTS)
async def test_openais_library_makes_the_whole_answer(client: str) -> None:
    """Their libraries read answers as OpenAI's does: text, calls, finish reason and usage."""
    seen = recorded(client)
    headers = {name.encode(): value.encode() for name, value in seen["headers"].items()}
    assert session_of(headers) == SESSIONS.get(client)
    body, where = seen["body"], target(None, "vllm", context_tokens=100_000)
    tool = next((tool["function"]["name"] for tool in body.get("tools", ())), "")
    arguments = '{"at": "x"}'
    async with harness(engines=1, driver="vllm") as platform:
        platform.script(tokens=4, prompt_tokens=7, tool=tool, texts=['{"at"', ": ", '"x"', "}"] if tool else [])
        arrival, reader = Arrival(CHAT, headers), Client()
        asked = CHAT.decode(msgspec.json.encode(body))
        made = await CHAT.prepare(asked, arrival.request_id, KEY.caller, "salt", where)
        await platform.run(InferenceRequest(arrival, KEY, where, made), reader)
        platform.require_balanced()
    assert (reader.answer.status, reader.answer.complete) == (200, True)
    if body["stream"]:
        state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
        *events, done = reader.answer.events
        assert done == "[DONE]"
        for event in events:
            state.handle_chunk(ChatCompletionChunk.model_validate(event))
        answer: ChatCompletion = state.get_final_completion()
    else:
        answer = ChatCompletion.model_validate(reader.answer.json)
    [choice] = answer.choices
    calls = [(call.type, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]  # type: ignore[union-attr]
    if tool:
        assert (choice.finish_reason, calls) == ("tool_calls", [("function", tool, arguments)])
    else:
        assert (choice.finish_reason, calls, choice.message.content) == ("stop", [], " t0 t1 t2 t3")
    usage = None if answer.usage is None else (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    assert usage == ((7, 4) if "stream_options" in body or not body["stream"] else None)
