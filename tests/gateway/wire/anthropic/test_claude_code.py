"""What Claude Code sends is served by engines of every driver.

`claude_code.json` has the shape of its requests, recorded from version 2.1.197 (npm): all fields, headers, tools and
schemas; texts, and the names of user and device, are ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.generation import ChatPrompt
from engines.drivers import registry as drivers
from gateway.wire.prepared import Prepared
from tests.gateway.wire.anthropic.asking import CHAT_MODEL, COUNT_TOKENS, MESSAGES
from tests.gateway.wire.openai.preparing import CALLER, target

RECORDED = msgspec.json.decode((Path(__file__).parent / "fixtures" / "claude_code.json").read_bytes())
NOT_COUNTED = ("max_tokens", "metadata", "stream")


def body(after_the_tool: bool = False) -> dict[str, Any]:
    messages = RECORDED["messages_after_the_tool"] if after_the_tool else RECORDED["body"]["messages"]
    return {**RECORDED["body"], "model": "m", "messages": messages}


async def prepare(driver: str, asked: dict[str, Any], *, counted: bool = True) -> Prepared:
    where = target(CHAT_MODEL if counted else None, driver, context_tokens=16_000)
    return await MESSAGES.prepare(MESSAGES.decode(msgspec.json.encode(asked)), "req_1", CALLER, "salt", where)


@pytest.mark.parametrize("after_the_tool", [False, True])
@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm", "tensorrt_llm", "openai"])
async def test_its_requests_reach_engines_of_every_driver(driver: str, after_the_tool: bool) -> None:
    prepared = await prepare(driver, body(after_the_tool))
    asked = msgspec.json.decode(drivers.get(driver).generate(prepared.generation, "m").body)
    assert [tool["function"]["name"] for tool in asked["tools"]] == [one["name"] for one in RECORDED["body"]["tools"]]
    assert asked["max_tokens"] == min(64_000, 16_000 - prepared.prompt_tokens)
    assert prepared.session == RECORDED["body"]["metadata"]["user_id"]
    roles = [message["role"] for message in asked["messages"]]
    assert roles == (
        ["system", "user", "system", "assistant", "tool"] if after_the_tool else ["system", "user", "system"]
    )
    assert not any("billing" in str(message) for message in asked["messages"])


async def test_its_second_request_continues_the_prefix_of_its_first() -> None:
    """Wherever its marks of cached parts have moved to."""
    first, second = [await prepare("vllm", body(after)) for after in (False, True)]
    whole_blocks = first.chain.hashes[: -2 * 16]
    assert len(whole_blocks) > 16
    assert second.chain.hashes.startswith(whole_blocks)
    assert isinstance(second.generation.prompt, ChatPrompt)


async def test_its_prompt_is_counted_as_it_is_charged() -> None:
    sent = await prepare("embedded", body(after_the_tool=True))
    asked = {name: value for name, value in body(after_the_tool=True).items() if name not in NOT_COUNTED}
    counted = await COUNT_TOKENS.prepare(
        COUNT_TOKENS.decode(msgspec.json.encode(asked)),
        "req_2",
        CALLER,
        "salt",
        target(CHAT_MODEL, "embedded", context_tokens=16_000),
    )
    assert counted.prompt_tokens == sent.prompt_tokens
    assert sent.exact
