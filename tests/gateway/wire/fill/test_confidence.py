"""Completions that the model was not sure of are empty, however the engine's text is cut into events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from contracts.errors import EngineFailed, UnsupportedField
from engines.drivers.error_bodies import engine_error
from gateway.wire.fill.confidence import Confidence
from gateway.wire.fill.request import Filled
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.fill.transcoder import Answer, FillCollector, FillRelay
from gateway.wire.usage_tracker import UsageTracker
from tests.examples import examples
from tests.gateway.wire.fill.naive_stop_rules import cut

Token = tuple[str, float]
TOKENS = st.lists(
    st.tuples(st.sampled_from(["a", "x = 1", "\n", "    b", "}", " "]), st.sampled_from([-0.1, -0.5, -2.0])), max_size=8
)
RULES = st.builds(StopRules, single_line=st.booleans(), min_indent=st.sampled_from([None, 1, 4]))


class Whole:
    def frame(self, text: str) -> bytes:
        return text.encode()

    def last(self, answer: Answer) -> bytes:
        return b""

    def whole(self, answer: Answer) -> bytes:
        return answer.text.encode()


def event(tokens: Sequence[Token], finish_reason: str | None = None, *, told: bool = True) -> bytes:
    names, values = [token for token, _ in tokens], [value for _, value in tokens]
    logprobs: dict[str, Any] | None = {"tokens": names, "token_logprobs": values, "text_offset": [-1] * len(tokens)}
    choice = {"index": 0, "text": "".join(names), "logprobs": logprobs if told else None}
    return b"data: " + msgspec.json.encode({"choices": [{**choice, "finish_reason": finish_reason}]}) + b"\n\n"


def filled(least: float, rules: StopRules | None = None) -> Filled:
    return Filled(rules=rules or StopRules(), suffix="", min_confidence=least)


def collected(events: Sequence[bytes], asked: Filled) -> str:
    collector = FillCollector(Whole(), asked, UsageTracker(1), engine_error)
    for one in events:
        collector.feed(one)
    return collector.finish().decode()


@pytest.mark.parametrize(
    "logprobs",
    [
        {"tokens": ["a"], "token_logprobs": ["sure"]},
        {"tokens": ["a"], "token_logprobs": [{}]},
        {"tokens": 5, "token_logprobs": 5},
        {"tokens": ["a"], "token_logprobs": [-(10**400)]},
    ],
)
def test_what_is_no_log_probability_is_the_engines_failure(logprobs: dict[str, Any]) -> None:
    with pytest.raises(EngineFailed):
        Confidence(0.5).add(logprobs)


@pytest.mark.parametrize("value", [1e6, 10**400, 1e308])
def test_no_token_is_surer_than_certain(value: float) -> None:
    confidence = Confidence(0.5)
    confidence.add({"tokens": ["a", "b"], "token_logprobs": [value, -2.0]})
    assert confidence.mean(2) == pytest.approx(math.exp(-1.0))


@given(TOKENS, RULES, st.sampled_from([0.3, 0.6, 0.8]), st.integers(1, 4))
@examples(nightly=400)
def test_cut_anywhere_a_completion_is_shown_or_not_by_the_tokens_that_are_left_of_it(
    tokens: list[Token], rules: StopRules, least: float, size: int
) -> None:
    text = cut("".join(token for token, _ in tokens), rules, "")
    counted, length = [], 0
    for token, value in tokens:
        if length < len(text):
            counted.append(value)
        length += len(token)
    sure = not counted or math.exp(sum(counted) / len(counted)) >= least

    pieces = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    whole = [event(tokens, "stop")]
    in_pieces = [event(piece) for piece in pieces] + [event((), "stop")]
    assert collected(whole, filled(least, rules)) == collected(in_pieces, filled(least, rules))
    assert collected(whole, filled(least, rules)) == (text if sure else "")


def test_a_stream_waits_for_the_verdict() -> None:
    for least, shown in ((0.9, b"ab"), (0.95, b"")):
        relay = FillRelay(Whole(), filled(least), UsageTracker(1), engine_error)
        assert relay.feed(event([("a", -0.1)]) + event([("b", -0.1)], "stop")) == b""
        assert relay.complete
        assert relay.finish() == shown
        assert relay.characters == len(shown)


@pytest.mark.parametrize("rules", [StopRules(), StopRules(single_line=True)])
def test_an_engine_that_tells_no_probabilities_is_named(rules: StopRules) -> None:
    relay = FillRelay(Whole(), filled(0.5, rules), UsageTracker(1), engine_error)
    relay.feed(event([("a\n", 0.0)], None, told=False) + event([("b", 0.0)], "stop", told=False))
    assert isinstance(relay.error, UnsupportedField)
    assert relay.error.param == "min_confidence"
    assert not relay.complete
    assert not relay.satisfied


def test_what_was_typed_already_is_not_judged() -> None:
    """Engines tell no token that holds nothing else (`tests/engines/embedded/test_openings.py`)."""
    whole = Confidence(0.5, "offse")
    whole.add({"tokens": ["t = 1", "x"], "token_logprobs": [-1.0, -3.0]})
    assert whole.mean(5) == pytest.approx(math.exp(-1.0))
    assert whole.mean(6) == pytest.approx(math.exp(-2.0))
    partly = Confidence(0.5, "offs")
    partly.add({"tokens": ["fset", " = 1"], "token_logprobs": [-1.0, -3.0]})
    assert partly.mean(2) == pytest.approx(math.exp(-1.0))
    assert partly.mean(3) == pytest.approx(math.exp(-2.0))
    nothing = Confidence(0.5, "else")
    nothing.add({"tokens": [":"], "token_logprobs": [-1.0]})
    assert nothing.mean(1) == pytest.approx(math.exp(-1.0))


def test_a_token_that_is_part_of_a_character_counts_with_it() -> None:
    confidence = Confidence(0.5)
    confidence.add({"tokens": ["a", "bytes:\\xc3", "bytes:\\xa9", "b"], "token_logprobs": [None, -1.0, -2.0, -9.0]})
    assert confidence.mean(2) == pytest.approx(math.exp(-4.0))
    assert confidence.mean(1) is None
    assert confidence.is_enough(0)
