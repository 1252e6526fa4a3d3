"""llama.cpp's answers: selected fields, several completions, one event after the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.generation import Caller, Generation, Sampling, TextPrompt, Tier
from contracts.usage import Usage
from engines.drivers.error_bodies import engine_error
from gateway.wire.fill.request import Filled
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.fill.transcoder import Answer
from gateway.wire.llama_cpp.answer import Framing, Wanted, selected
from gateway.wire.llama_cpp.several import Several
from gateway.wire.usage_tracker import UsageTracker

ANSWER = Answer(
    text="a\nb",
    usage=Usage(prompt_tokens=10, completion_tokens=4, cached_tokens=8),
    finish_reason="stop",
    prompt_s=0.5,
    output_s=2.0,
    created=1,
)


def generation(n: int = 1) -> Generation:
    sampling = Sampling(16, n=n, temperature=0.1, stop=("x",))
    return Generation("req_1", Caller("o", "p", "k"), Tier.AUTOCOMPLETE, "m", TextPrompt(("p",)), sampling)


def test_a_path_leads_into_objects_and_keeps_its_name() -> None:
    body = {"content": "x", "timings": {"prompt_n": 2, "deep": {"er": None}}, "a/b": 1}
    assert selected(body, ("timings/prompt_n", "content")) == {"timings/prompt_n": 2, "content": "x"}
    assert selected(body, ("timings/deep/er", "timings/deep")) == {
        "timings/deep/er": None,
        "timings/deep": {"er": None},
    }
    assert selected(body, ("", "none", "timings/none", "content/more", "timings/prompt_n/more", "a/b")) == {}


def test_timings_count_what_was_not_cached() -> None:
    told = msgspec.json.decode(Framing(generation(), Wanted(), truncated=True).whole(ANSWER))
    assert told["timings"] == {
        "cache_n": 8,
        "prompt_n": 2,
        "prompt_ms": 500.0,
        "prompt_per_token_ms": 250.0,
        "prompt_per_second": 4.0,
        "predicted_n": 4,
        "predicted_ms": 2_000.0,
        "predicted_per_token_ms": 500.0,
        "predicted_per_second": 2.0,
    }
    assert (told["tokens_evaluated"], told["tokens_cached"], told["truncated"]) == (10, 8, True)
    assert (told["has_new_line"], told["stop_type"], told["model"]) == (True, "eos", "m")
    assert told["generation_settings"] == {"n_predict": 16, "temperature": 0.1, "stop": ["x"], "stream": False}


def test_nothing_is_divided_by_what_was_not_used() -> None:
    nothing = msgspec.structs.replace(ANSWER, usage=Usage(), prompt_s=0.0, output_s=0.0, finish_reason="length")
    told = msgspec.json.decode(Framing(generation(), Wanted(), truncated=False).whole(nothing))
    assert set(told["timings"].values()) == {0}
    assert told["stop_type"] == "limit"


def test_a_streams_last_event_has_no_text_and_the_selected_fields() -> None:
    framing = Framing(generation(), Wanted(("content", "stop", "tokens_predicted")), truncated=False)
    assert framing.frame('"x"\n') == (
        b'data: {"index":0,"content":"\\"x\\"\\n","tokens":[],"stop":false,"id_slot":-1}\n\n'
    )
    assert framing.last(ANSWER) == b'data: {"content":"","stop":true,"tokens_predicted":4}\n\n'
    assert framing.whole(ANSWER) == b'{"content":"a\\nb","stop":true,"tokens_predicted":4}'


def event(*choices: tuple[int, str, str | None], **more: Any) -> bytes:
    listed = [{"index": index, "text": text, "finish_reason": reason} for index, text, reason in choices]
    return b"data: " + msgspec.json.encode({"object": "text_completion", "choices": listed, **more}) + b"\n\n"


def several(rules: StopRules | None = None) -> Several:
    filled = Filled(rules=rules or StopRules(), suffix="")
    wanted = Wanted(("index", "content", "tokens_predicted", "tokens_evaluated"), several=True)
    return Several(generation(n=2), filled, wanted, UsageTracker(2), engine_error)


def used(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}


def test_several_completions_are_an_array_in_their_order() -> None:
    collector = several()
    events = [
        event((0, "a", None), usage=used(1)),
        event((1, "x", None), usage=used(1)),
        event((1, "y", "stop"), usage=used(2)),
        event((0, "", "stop"), usage=used(1)),
        event(usage=used(3)) + b"data: [DONE]\n\n",
    ]
    data = b"".join(events)
    for at in range(0, len(data), 7):
        assert collector.feed(data[at : at + 7]) == b""
    assert collector.complete
    assert not collector.satisfied
    assert msgspec.json.decode(collector.finish()) == [
        {"index": 0, "content": "a", "tokens_predicted": 1, "tokens_evaluated": 5},
        {"index": 1, "content": "xy", "tokens_predicted": 2, "tokens_evaluated": 5},
    ]


def test_the_sum_of_all_completions_is_the_count_of_none() -> None:
    collector = several()
    collector.feed(event((0, "a", None)) + event((1, "x", None)) + event((1, "y", None)) + event((1, "z", "stop")))
    collector.feed(event((0, "b", "stop")) + event(usage=used(5)) + b"data: [DONE]\n\n")
    assert [one["tokens_predicted"] for one in msgspec.json.decode(collector.finish())] == [2, 3]


def test_an_engine_goes_on_until_a_rule_has_ended_every_completion() -> None:
    collector = several(StopRules(single_line=True))
    collector.feed(event((0, "a\nb", None), (1, "x", None)))
    assert not collector.satisfied
    collector.feed(event((1, "\ny", None)))
    assert collector.satisfied
    assert not collector.finished
    assert [one["content"] for one in msgspec.json.decode(collector.finish())] == ["a", "x"]


def test_a_stream_of_several_tells_whose_each_event_is_and_ends_each() -> None:
    filled = Filled(rules=StopRules(single_line=True), suffix="")
    wanted = Wanted(("index", "content", "stop", "tokens_predicted"), several=True)
    asked = msgspec.structs.replace(generation(n=2), stream=True)
    relay = Several(asked, filled, wanted, UsageTracker(2), engine_error)
    data = b"".join(
        [
            event((0, "a", None), usage=used(1)),
            event((1, "x", None), usage=used(1)),
            event((1, "y\nz", "length"), usage=used(2)),
            event((0, "b", "stop"), usage=used(2)),
            event(usage=used(4)) + b"data: [DONE]\n\n",
        ]
    )
    sent = b"".join(relay.feed(data[at : at + 7]) for at in range(0, len(data), 7))
    assert relay.complete
    events = [msgspec.json.decode(one.removeprefix(b"data: ")) for one in (sent + relay.finish()).split(b"\n\n")[:-1]]
    for index, text in ((0, "ab"), (1, "xy")):
        own = [one for one in events if one["index"] == index]
        assert "".join(one["content"] for one in own) == text
        assert [one["stop"] for one in own] == [False] * (len(own) - 1) + [True]
    assert [one["tokens_predicted"] for one in events[-2:]] == [2, 2]


def test_an_engines_error_is_kept() -> None:
    collector = several()
    collector.feed(b'data: {"error":{"message":"out of memory","code":500}}\n\n')
    collector.feed(event((0, "a", "stop"), (1, "a", "stop")))
    assert collector.error is not None
    assert not collector.complete


@pytest.mark.parametrize("index", [2, 900])
def test_a_completion_that_was_not_asked_for_is_passed_over(index: int) -> None:
    collector = several()
    collector.feed(event((index, "a", None)) + event((0, "a", "stop")) + event((1, "b", "stop")))
    assert [one["content"] for one in msgspec.json.decode(collector.finish())] == ["a", "b"]
