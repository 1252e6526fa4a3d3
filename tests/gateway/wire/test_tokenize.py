"""A conversation's ids are those of the chat completion."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.desired_state import Model
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.prepared import Target
from gateway.wire.tokenize.format import TokenizeFormat
from gateway.wire.tokenize.schema import Tokenized
from tests.deployment import ROOT

CHAT = ROOT / "models" / "slipstream-chat"


async def test_a_conversations_ids_are_those_of_its_chat_completion() -> None:
    own = OffLoopTokenizer(Tokenizer.load(CHAT))
    target = Target(Model("m", Tier.CHAT, "pool", 4_096), drivers.get("embedded").capabilities, own)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "A heron."},
    ]
    for fields in ({"messages": messages[:2]}, {"messages": messages, "tools": [tool]}):
        asked = msgspec.json.encode({"model": "m", **fields})
        prepared = {}
        for wire_format in (ChatFormat(RequestConfig()), TokenizeFormat(RequestConfig())):
            decoded: Any = wire_format.decode(asked)
            made = await wire_format.prepare(decoded, "req_1", Caller("o", "p", "k"), "salt", target)
            prepared[wire_format.name] = made
        tokenized = prepared["tokenize"].details
        assert isinstance(tokenized, Tokenized)
        assert tokenized.count == len(tokenized.tokens) == prepared["chat"].prompt_tokens
    own.close()
