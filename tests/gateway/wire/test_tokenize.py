"""A conversation's ids are those of the chat completion, and many ids become texts in a thread."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Model
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.prepared import Target
from gateway.wire.tokenize.format import DetokenizeFormat, TokenizeFormat
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


@pytest.mark.parametrize("count", [100, 5_000])
async def test_the_texts_of_many_ids_are_found_off_the_event_loop(count: int) -> None:
    threads: set[int] = set()

    class Watched(Tokenizer):
        def whole_text(self, ids: Any) -> str:
            threads.add(threading.get_ident())
            return super().whole_text(ids)

        def token_text(self, id_: int) -> str:
            threads.add(threading.get_ident())
            return super().token_text(id_)

    own = OffLoopTokenizer(Watched.load(CHAT))
    target = Target(Model("m", Tier.CHAT, "pool", 100_000), drivers.get("embedded").capabilities, own)
    asks: tuple[tuple[Any, dict[str, Any]], ...] = (
        (DetokenizeFormat, {"tokens": [5] * count}),
        (TokenizeFormat, {"prompt": "a " * count, "return_token_strs": True}),
    )
    for made, fields in asks:
        threads.clear()
        wire_format = made(RequestConfig())
        decoded = wire_format.decode(msgspec.json.encode({"model": "m", **fields}))
        await wire_format.prepare(decoded, "req_1", Caller("o", "p", "k"), "salt", target)
        assert threads
        assert (threading.get_ident() in threads) is (count == 100)
    own.close()
