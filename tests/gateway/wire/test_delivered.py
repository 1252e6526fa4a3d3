"""What was delivered is counted for an engine that counts nothing: never more than it made, and in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import msgspec
import pytest

from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.chunk import has_text, texts_of
from gateway.wire.delivered import KEPT_CHARACTERS, UNREAD_BYTES, Delivered
from tests.deployment import ROOT

CODE = (ROOT / "gateway" / "wire" / "openai" / "relay.py").read_text()


@pytest.fixture(scope="module")
def tokenizer() -> OffLoopTokenizer:
    return OffLoopTokenizer(Tokenizer.load(ROOT / "models" / "slipstream-code"))


def event(text: str | None, index: int = 0, **delta: Any) -> bytes:
    choice = {"index": index, "delta": {"content": text, **delta}, "finish_reason": None}
    return msgspec.json.encode({"id": "x", "choices": [choice]})


async def of_pieces(pieces: list[str], tokenizer: OffLoopTokenizer | None) -> int:
    """By the two ways an event may come in."""
    raw, read = Delivered(), Delivered()
    for piece in pieces:
        raw.add(event(piece))
        read.chunk(msgspec.json.decode(event(piece)))
    count = await raw.tokens(tokenizer, "tenant")
    assert count == await read.tokens(tokenizer, "tenant")
    return count


async def test_the_models_own_tokens_one_an_event_are_all_counted(tokenizer: OffLoopTokenizer) -> None:
    ids = tokenizer.tokenizer.encode(CODE[:9_000])
    pieces = [text for text in (tokenizer.tokenizer.decode([id_]) for id_ in ids) if "\ufffd" not in text]
    assert await of_pieces(pieces, None) == len(pieces)
    assert await of_pieces(pieces, tokenizer) >= len(pieces)


async def test_events_of_several_tokens_are_counted_by_the_tokenizer(tokenizer: OffLoopTokenizer) -> None:
    choose, text, pieces = random.Random(1), CODE[:9_000], []
    while text:
        length = choose.randint(1, 60)
        pieces.append(text[:length])
        text = text[length:]
    count = await of_pieces(pieces, tokenizer)
    assert count == len(tokenizer.tokenizer.encode(CODE[:9_000])) > 2 * len(pieces)
    assert await of_pieces(pieces, None) == len(pieces), "without one, an event is one token"


async def test_choices_are_counted_apart_and_nothing_is_no_token(tokenizer: OffLoopTokenizer) -> None:
    delivered = Delivered()
    for payload in (event(""), event(None, role="assistant"), event("import os", 0), event("import os", 1)):
        delivered.add(payload)
    delivered.chunk({"choices": []})
    assert delivered.events == 2
    assert await delivered.tokens(tokenizer, "tenant") == 2 * len(tokenizer.tokenizer.encode("import os"))


def test_text_is_whatever_the_model_wrote() -> None:
    calls = [{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}, {"index": 1, "function": None}]
    chunk = {"choices": [{"index": 3, "delta": {"reasoning_content": "so", "tool_calls": calls}}, {"text": "t"}]}
    assert list(texts_of(chunk)) == [(3, 'sof{"a"'), (0, "t")]
    assert has_text(chunk)


async def test_usual_and_unusual_events_mean_the_same() -> None:
    choices: list[dict[str, Any]] = [
        {"index": 2, "delta": {"content": "a", "reasoning_content": None}},
        {"delta": {"content": None, "reasoning_content": "b"}},
        {"delta": {"content": None, "reasoning": "b"}},
        {"delta": {"content": "c", "tool_calls": None}},
        {"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}},
        {"delta": {"content": ["parts"]}},
        {"index": 1, "text": "t", "logprobs": {"tokens": ["t"]}},
        {"index": 1, "text": ""},
        {"delta": {}},
        {"delta": {"refusal": "no"}},
    ]
    every: list[list[dict[str, Any]]] = [[{"choices": [choice]} for choice in choices], [{"choices": choices}]]
    for events in (*every, [{"choices": []}]):
        raw, read = Delivered(), Delivered()
        for one in events:
            raw.add(msgspec.json.encode(one))
            read.chunk(one)
        assert raw.events == read.events == sum(len(list(texts_of(one))) for one in events)
        assert raw._texts == read._texts


async def test_an_event_that_cannot_be_read_was_still_something() -> None:
    delivered = Delivered()
    for payload in (b'{"choices":[{"x', b'{"choices":[7]}', event("a")):
        delivered.add(payload)
    assert await delivered.tokens(None, "tenant") == 3


@pytest.mark.parametrize("way", ["raw", "decoded", "texts"])
def test_texts_of_a_token_each_take_little_more_than_their_characters(way: str) -> None:
    """Fault: 512 streams of ten minutes held 300 MiB, 66 bytes for each token."""
    delivered = Delivered()

    def add() -> None:
        if way == "raw":
            delivered.add(event(" word"))
        elif way == "decoded":
            delivered.chunk(msgspec.json.decode(event(" word")))
        else:
            delivered.texts([bytes(bytearray(b" word"))])

    add()
    tracemalloc.start()
    for _ in range(13_000):
        add()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * (UNREAD_BYTES + KEPT_CHARACTERS)


async def test_memory_is_bounded_and_what_lies_beyond_counts_one_token_an_event(tokenizer: OffLoopTokenizer) -> None:
    def stream(delivered: Delivered, events: int) -> None:
        for number in range(events):
            delivered.add(event(f"def function_{number}(argument):\n    return argument\n"))

    delivered = Delivered()
    stream(delivered, 50)
    tracemalloc.start()
    stream(delivered, 20_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # text may take four bytes a character, and small pieces have heads of their own
    assert held < 8 * (UNREAD_BYTES + KEPT_CHARACTERS)
    count = await delivered.tokens(tokenizer, "tenant")
    assert delivered.events == 20_050
    kept = KEPT_CHARACTERS // 50
    assert count > 20_050 - kept + 5 * kept // 2

    one = Delivered()
    one.add(event(CODE * (2 * KEPT_CHARACTERS // len(CODE))))
    assert await one.tokens(tokenizer, "tenant") > KEPT_CHARACTERS // 8, "one event with everything is not one token"
