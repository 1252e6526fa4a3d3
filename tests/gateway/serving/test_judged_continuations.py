"""Gaps whose answers are judged share generations too, and each is judged by the tokens of its own text."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gateway.serving.continuations import bytes_of
from gateway.serving.recording import Cursor, Recording
from gateway.wire.fill.confidence import Confidence
from gateway.wire.written import Token, text_event
from tests.gateway.serving.test_continuations import FILE, REST, asking, fim, fim_text

SURE = 0.5
"""The fake engine is as sure of each token as e^-0.5, or 0.61."""
UNSURE = 0.7


@pytest.mark.parametrize("stream", [True, False])
async def test_a_judged_gap_in_flight_is_shared_and_judged_by_each_for_itself(stream: bool) -> None:
    async with asking(hang_after_tokens=2) as platform:
        leader = platform.ask(fim(min_confidence=SURE))
        await platform.at_the_engine()
        follower = platform.ask(fim(min_confidence=SURE, stream=stream))
        doubter = platform.ask(fim(min_confidence=UNSURE, stream=stream))
        await platform.reading(2)
        await platform.goes_on()
        assert [fim_text(client) for client in (leader, follower, doubter)] == [REST, REST, ""]
        assert platform.requests == 1


@pytest.mark.parametrize("typed", [1, 3, 20])
@pytest.mark.parametrize(("least", "shown"), [(SURE, True), (UNSURE, False)])
async def test_what_is_typed_on_is_judged_by_what_is_left(typed: int, least: float, shown: bool) -> None:
    async with asking() as platform:
        asked = fim(min_confidence=UNSURE), fim(FILE[: 10 + typed], min_confidence=least)
        _, follower = await platform.one_after_another(*asked)
        assert fim_text(follower) == (REST[typed:] if shown else "")
        assert platform.requests == 1


async def test_a_judged_gap_and_one_that_is_not_share_nothing() -> None:
    async with asking() as platform:
        await platform.one_after_another(fim(min_confidence=SURE), fim(FILE[:13]))
        assert platform.requests == 2


def recording_of(tokens: list[Token], opening: int) -> Recording:
    """As an engine tells it: of what the output begins with no token, but the one that goes on behind it."""
    whole = "".join(token for token, _ in tokens)
    recording = Recording("req_1", Cursor(b"", 0, b"", b""), whole[:opening])
    end = 0
    for token in tokens:
        start, end = end, end + len(token[0])
        if end > opening:
            recording.feed(text_event(whole[max(start, opening) : end], 1, "m", [token]))
    return recording


@pytest.mark.parametrize("typed", range(6))
@pytest.mark.parametrize("opening", [0, 2, 3, 5])
def test_the_rest_is_as_sure_as_its_own_tokens(typed: int, opening: int) -> None:
    """Beside a plain twin: of every character behind what is typed, the token that it is of."""
    tokens: list[Token] = [("abc", -1.0), ("d", -2.0), ("efg", -4.0), ("hijk", -8.0), ("l", -16.0)]
    recording = recording_of(tokens, opening)
    text = "".join(token for token, _ in tokens)[opening:]
    assert recording.written.text == text
    reading = recording.read(text[:typed])
    confidence = Confidence(0.5)
    left = reading.take_tokens()
    confidence.add({"tokens": [token for token, _ in left], "token_logprobs": [value for _, value in left]})
    owners = [number for number, (token, _) in enumerate(tokens) for _ in token][opening + typed :]
    values = [tokens[number][1] for number in dict.fromkeys(owners)]
    assert "".join(token for token, _ in left) == text[typed:]
    mean = confidence.mean(len(text) - typed)
    assert mean == pytest.approx(math.exp(sum(value for value in values if value is not None) / len(values)))
    assert reading.take_tokens() == []


def test_tokens_of_parts_of_characters_stay_with_what_is_typed() -> None:
    tokens: list[Token] = [("a", -1.0), ("bytes:\\xc3", -2.0), ("bytes:\\xa9", -3.0), ("b", -4.0)]
    recording = recording_of(tokens[:1], 0)
    for token in tokens[1:]:
        text = {"bytes:\\xa9": "é", "b": "b"}.get(token[0], "")
        recording.feed(text_event(text, 1, "m", [token]))
    assert recording.read("").take_tokens() == tokens
    assert [value for _, value in recording.read("a").take_tokens()] == [-2.0, -3.0, -4.0]


def test_tokens_that_the_text_has_not_count_as_memory() -> None:
    plain, padded = recording_of([("a", -1.0)], 0), Recording("req_1", Cursor(b"", 0, b"", b""))
    padded.feed(text_event("a", 1, "m", [("a" * 100_000, -1.0)]))
    assert bytes_of(padded) - bytes_of(plain) >= 99_000


def test_an_engines_events_without_tokens_are_read_as_ever() -> None:
    recording = Recording("req_1", Cursor(b"", 0, b"", b""))
    event: dict[str, Any] = {"choices": [{"text": "a", "logprobs": {"content": []}, "finish_reason": None}]}
    recording.feed(b"data: " + msgspec.json.encode(event) + b"\n\n")
    assert (recording.written.text, recording.written.tokens) == ("a", [])
