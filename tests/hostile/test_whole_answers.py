"""An answer that is not streamed takes about as much memory as its bytes, and its log probabilities have a limit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from gateway.wire.config import RequestConfig
from gateway.wire.openai.collect import MAX_ECHOED, Collector, require_room

ALTERNATIVES = 20
MAX = RequestConfig().max_whole_logprobs


def entry(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -1.2345678901, "bytes": list(token.encode())}


def chat_event(index: int, number: int) -> bytes:
    tops = [entry(f" t{number + at}") for at in range(ALTERNATIVES)]
    logprobs = {"content": [{**entry(f" t{number}"), "top_logprobs": tops}], "refusal": None}
    choice = {"index": index, "delta": {"content": " t"}, "logprobs": logprobs, "finish_reason": None}
    event = {"id": "e", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def text_event(index: int, number: int) -> bytes:
    logprobs = {
        "tokens": [f" t{number}"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{f" t{number + at}": -1.5 for at in range(5)}],
        "text_offset": [number],
    }
    choice = {"index": index, "text": " t", "logprobs": logprobs, "finish_reason": None}
    event = {"id": "e", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


@pytest.mark.parametrize("event", [chat_event, text_event])
def test_log_probabilities_take_their_bytes_and_no_more(event: Any) -> None:
    choices, tokens = 4, 500
    collector = Collector("id", "m", choices)
    tracemalloc.start()
    try:
        for number in range(tokens):
            for index in range(choices):
                collector.feed(event(index, number))
        kept_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        body = collector.finish()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    answer = msgspec.json.decode(body)
    for choice in answer["choices"]:
        logprobs = choice["logprobs"]
        assert len(logprobs["content"] if event is chat_event else logprobs["tokens"]) == tokens
    assert kept_bytes < 1.5 * len(body) + 200_000
    assert peak_bytes < 4.5 * len(body) + 100_000


def test_a_whole_answer_is_what_its_events_said() -> None:
    collector = Collector("id", "m", 1)
    events = [chat_event(0, number) for number in range(3)]
    for event in events:
        collector.feed(event)
    (choice,) = msgspec.json.decode(collector.finish())["choices"]
    said = [msgspec.json.decode(event[6:])["choices"][0] for event in events]
    assert choice["message"]["content"] == " t" * 3
    assert choice["logprobs"] == {
        "content": [one for part in said for one in part["logprobs"]["content"]],
        "refusal": None,
    }


def test_four_times_the_tokens_need_four_times_the_memory_in_passing() -> None:
    """A copy of the whole answer for each token would need sixteen times as much."""

    def passing_bytes(tokens: int) -> int:
        collector, taken = Collector("id", "m", 1), 0
        events = [chat_event(0, number) for number in range(tokens)]
        tracemalloc.start()
        try:
            for event in events:
                before = tracemalloc.get_traced_memory()[0]
                tracemalloc.reset_peak()
                collector.feed(event)
                taken += tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        return taken

    passing_bytes(10)
    assert passing_bytes(2_000) < 5 * passing_bytes(500)


def generation(
    max_tokens: int, n: int, logprobs: int | None, *, stream: bool = False, prompt: Any = None
) -> Generation:
    sampling = Sampling(max_tokens, n=n, logprobs=logprobs)
    return Generation("r", Caller("o", "p", "k"), Tier.CHAT, "m", prompt or ChatPrompt(()), sampling, stream=stream)


def test_more_log_probabilities_than_fit_are_refused_with_the_number_that_does() -> None:
    require_room(generation(MAX // 21, 1, 20), 10, MAX)
    require_room(generation(1_000_000, 16, None), 10, MAX)
    require_room(generation(1_000_000, 16, 20, stream=True), 10, MAX)
    for one in (generation(MAX // 21 + 1, 1, 20), generation(4_500, 16, 20), generation(MAX + 1, 1, 0)):
        with pytest.raises(InvalidField, match=f"at most {MAX}") as caught:
            require_room(one, 10, MAX)
        assert caught.value.param == "logprobs"


def test_an_echoed_prompt_counts_once_for_each_of_its_choices() -> None:
    echoed = TextPrompt(("x", "y"), echo=True)
    require_room(generation(10, 2, 0, prompt=echoed), 30, 4 * 10 + 2 * 30)
    with pytest.raises(InvalidField):
        require_room(generation(10, 2, 0, prompt=echoed), 30, 4 * 10 + 2 * 30 - 1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_whose_log_probabilities_do_not_fit_one_event_is_refused(stream: bool) -> None:
    """Engines send an echoed prompt in one event, and the relay cuts a larger one off as a fault of the engine."""
    ids = tuple(range(MAX_ECHOED // 2))
    require_room(generation(1, 1, 1, stream=stream, prompt=TextPrompt((ids, ids[:9]), echo=True)), 99_999, 1 << 30)
    for prompts, tokens in (((ids, (*ids, 1)), 1 << 20), (("x",), MAX_ECHOED // 2 + 1)):
        with pytest.raises(InvalidField, match=f"at most {MAX_ECHOED}") as caught:
            require_room(generation(1, 1, 1, stream=stream, prompt=TextPrompt(prompts, echo=True)), tokens, 1 << 30)
        assert caught.value.param == "echo"
