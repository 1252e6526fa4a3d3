"""`best_of`: which choices are answered with, and what an engine must tell for it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from contracts.errors import UnsupportedField
from contracts.generation import Sampling
from gateway.wire.openai.best_of import BestOf, best_of, likelihood
from gateway.wire.openai.collect import Collector


def choice(index: int, *values: float | None) -> dict[str, Any]:
    return {
        "index": index,
        "text": f"t{index}",
        "logprobs": {"token_logprobs": list(values)} if values else None,
        "finish_reason": "stop",
    }


def test_the_likeliest_per_token_of_each_prompt_come_first() -> None:
    # the second is likelier per token, the first as a whole
    found = [choice(0, -1.5), choice(1, -1.0, -1.0), choice(2, -3.0), choice(3), choice(4, -0.5), choice(5, -0.1)]
    picked = BestOf(3, 2, report=True).pick(dict(enumerate(found)), {})
    assert [(one["index"], one["text"]) for one in picked] == [(0, "t1"), (1, "t0"), (2, "t5"), (3, "t4")]
    assert picked[0]["logprobs"] == {"token_logprobs": [-1.0, -1.0]}


def test_log_probabilities_nobody_asked_for_are_left_out() -> None:
    picked = BestOf(2, 1, report=False).pick({0: choice(0, -1.0), 1: choice(1, -2.0)}, {})
    assert [(one["text"], one["logprobs"]) for one in picked] == [("t0", None)]


def test_an_echoed_prompt_is_not_compared() -> None:
    echoed = choice(0, None, -9.0, -9.0, -0.1)
    assert likelihood(echoed, 1) == -0.1
    assert likelihood(echoed, None) == pytest.approx(-18.1 / 3)
    assert likelihood(echoed, 0) == -math.inf
    assert likelihood(choice(0), 3) == -math.inf


def test_all_are_answered_with_unless_fewer_are_wanted() -> None:
    assert best_of(Sampling(max_tokens=1, n=3)) is None
    assert best_of(Sampling(max_tokens=1, n=3, best=2, logprobs=0)) == BestOf(3, 2, report=True)


def collected(logprobs: bool) -> Collector:
    collector = Collector("cmpl-1", "m", choices=2, best_of=BestOf(2, 1, report=False))
    for index in range(2):
        whole = choice(index, -2.0 + index)
        one = {**whole, "logprobs": whole["logprobs"] if logprobs else None}
        usage = {"prompt_tokens": 3, "completion_tokens": 1 + index}
        event = {"id": "e", "object": "text_completion", "created": 1, "choices": [one], "usage": usage}
        collector.feed(b"data: " + msgspec.json.encode(event) + b"\n\n")
    whole_usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}
    collector.feed(b"data: " + msgspec.json.encode(whole_usage) + b"\n\ndata: [DONE]\n\n")
    return collector


def test_the_answer_has_the_best_and_its_usage_has_all() -> None:
    collector = collected(logprobs=True)
    assert collector.complete
    body = msgspec.json.decode(collector.finish())
    assert [(one["index"], one["text"], one["logprobs"]) for one in body["choices"]] == [(0, "t1", None)]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 3)


def test_an_engine_that_tells_no_log_probabilities_is_a_refusal_and_not_a_guess() -> None:
    """Nor an engine's failure: whoever asks often enough would take its replica out of service."""
    collector = collected(logprobs=False)
    assert not collector.complete
    assert isinstance(collector.error, UnsupportedField)
    assert collector.error.param == "best_of"
