"""Anthropic's own Python library judges the gateway's streams: its accumulator makes the whole answer of one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anthropic
import msgspec
import pytest

from contracts.errors import Overloaded
from gateway.auth.scopes import Scope
from gateway.http.loop_shares import LoopShares
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint
from gateway.serving.model_catalog import MayUse
from gateway.serving.token_count import TokenCountEndpoint
from gateway.wire.anthropic.openapi import COUNT_TOKENS_PATH, MESSAGES_PATH
from gateway.wire.config import RequestConfig
from gateway.wire.prepared import Target
from tests.gateway.served import served
from tests.gateway.serving.harness import Harness, harness, target
from tests.gateway.serving.test_wire_seam import Parts
from tests.gateway.wire.anthropic.asking import CHAT_MODEL, COUNT_TOKENS, MESSAGES, TOOL
from tests.gateway.wire.anthropic.test_claude_code import body

ASKED: Any = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}


class CountingParts(Parts):
    """With a tokenizer."""

    context_tokens = 4_096

    def find(self, name: str, may_use: MayUse, adapters: object = (), *_: object) -> Target:
        found = target("sglang", CHAT_MODEL)
        model = msgspec.structs.replace(found.model, context_tokens=self.context_tokens)
        return msgspec.structs.replace(found, model=model)


@contextlib.asynccontextmanager
async def client(platform: Harness, context_tokens: int = 4_096) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The library, of a server with both endpoints."""
    config, parts, shares = RequestConfig(), CountingParts(platform), LoopShares()
    parts.context_tokens = context_tokens
    room = BodyRoom(config.organization_body_bytes)
    rest: Any = (Scope.CHAT, 100_000, config, shares, room)
    endpoints: Mapping[str, Any] = {
        MESSAGES_PATH: InferenceEndpoint(parts, MESSAGES, *rest),  # type: ignore[arg-type]
        COUNT_TOKENS_PATH: TokenCountEndpoint(parts, COUNT_TOKENS, *rest),  # type: ignore[arg-type]
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await endpoints[scope["path"]](scope, receive, send)

    async with (
        served(app) as server,
        anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="secret", max_retries=0) as made,
    ):
        yield made


@pytest.mark.parametrize(
    "script",
    [
        {"tokens": 4, "cached_tokens": 3},
        {"tool": "look", "texts": ['{"at"', ":", '"x"}'], "tokens": 3},
        {"tool": "look", "texts": [""], "tokens": 1},
        {"tokens": 60},
    ],
)
async def test_its_accumulator_makes_the_whole_answer_of_a_stream(script: dict[str, Any]) -> None:
    async with harness(tokenizer=CHAT_MODEL) as platform, client(platform) as sdk:
        count = await sdk.messages.count_tokens(model="m", messages=ASKED["messages"], tools=ASKED["tools"])
        platform.script(prompt_tokens=count.input_tokens, **script)
        whole = await sdk.messages.create(**ASKED)
        async with sdk.messages.stream(**ASKED) as stream:
            begun = None
            async for event in stream:
                if event.type == "message_start":
                    begun = event.message.usage.model_copy()
            streamed = await stream.get_final_message()
        blocks = [block.model_dump(exclude={"parsed_output"}) for block in streamed.content]
        assert blocks == [block.model_dump() for block in whole.content]
        assert (streamed.stop_reason, streamed.usage) == (whole.stop_reason, whole.usage)
        assert begun is not None
        for usage in (begun, streamed.usage):
            cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
            assert usage.input_tokens + cached == count.input_tokens
        for record in platform.journal.records:
            assert record.usage.prompt_tokens == count.input_tokens
        platform.require_balanced()


async def test_its_accumulator_reads_the_answer_to_claude_codes_request() -> None:
    """All that Claude Code sends, and a call of one of its tools."""
    async with harness(tokenizer=CHAT_MODEL) as platform, client(platform, context_tokens=16_000) as sdk:
        platform.script(tool="Bash", texts=['{"command"', ':"ls"}'], tokens=2)
        async with sdk.messages.stream(max_tokens=50, model="m", messages=[], extra_body=body()) as stream:
            said = await stream.get_final_message()
        (call,) = said.content
        assert call.type == "tool_use"
        assert (said.stop_reason, call.name, call.input) == ("tool_use", "Bash", {"command": "ls"})


async def test_an_answer_goes_back_as_it_came() -> None:
    async with harness(tokenizer=CHAT_MODEL) as platform, client(platform) as sdk:
        platform.script(tool="look", texts=['{"at":"x"}'], tokens=1)
        async with sdk.messages.stream(**ASKED) as stream:
            said = await stream.get_final_message()
        (call,) = said.content
        assert call.type == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "two birds"}
        history = [
            *ASKED["messages"],
            {"role": "assistant", "content": said.content},
            {"role": "user", "content": [result]},
        ]
        platform.script(tool="", texts=(), tokens=2)
        answer = await sdk.messages.create(**{**ASKED, "messages": history})
        assert answer.content[0].type == "text"


async def test_its_errors_are_of_their_kinds() -> None:
    async with harness(tokenizer=CHAT_MODEL) as platform, client(platform) as sdk:
        with pytest.raises(anthropic.BadRequestError, match="max_tokens") as invalid:
            await sdk.messages.create(**{**ASKED, "max_tokens": 0})
        assert invalid.value.request_id
        platform.faults.raises["reserve"] = Overloaded("full", retry_after_s=3)
        with pytest.raises(anthropic.APIStatusError, match="full") as refused:
            await sdk.messages.create(**ASKED)
        assert refused.value.status_code == 529
        platform.faults.raises.clear()
        platform.script(die_after_tokens=2)
        with pytest.raises(anthropic.APIStatusError, match="engine"):
            async with sdk.messages.stream(**ASKED) as stream:
                await stream.get_final_message()
