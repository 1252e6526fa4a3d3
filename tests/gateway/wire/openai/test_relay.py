"""The relay: whatever way the engine's bytes are cut or joined, the client gets the same events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed, EngineRefused
from contracts.usage import Usage
from gateway.wire.openai.collect import Collector
from gateway.wire.openai.relay import Relay, rewrite_decoded
from gateway.wire.usage_tracker import UsageTracker
from tests.examples import examples

OURS, MODEL = "chatcmpl-ours", "public-model"


def sse(*payloads: dict[str, Any] | str) -> bytes:
    lines = [p if isinstance(p, str) else msgspec.json.encode(p).decode() for p in payloads]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def chunk(content: str | None = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    delta: dict[str, Any] = {} if content is None else {"content": content}
    if "role" in more:
        delta["role"] = more.pop("role")
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": finish and 3}
    event = {"id": "req_1", "object": "chat.completion.chunk", "created": 7, "model": "engine-model"}
    return {**event, "choices": [choice], **more}


def usage(completion: int) -> dict[str, Any]:
    counts = {"prompt_tokens": 5, "completion_tokens": completion, "total_tokens": 5 + completion}
    return {**counts, "prompt_tokens_details": {"cached_tokens": 2}}


CONTENT = ["Hel", 'lo "quoted" \\ \n', ',"usage":{"prompt_tokens":1}', "ünï", '"finish_reason":"stop"', "data: [DONE]"]


def engine_stream(running_usage: bool, role_first: bool, usage_event: bool = True) -> bytes:
    def extra(completion: int) -> dict[str, Any]:
        return {"usage": usage(completion)} if running_usage else {}

    payloads: list[dict[str, Any] | str] = []
    if role_first:
        payloads.append(chunk("", role="assistant", **extra(0)))
    payloads += [chunk(text, **extra(n + 1)) for n, text in enumerate(CONTENT)]
    payloads.append(chunk(None, finish="stop", **extra(len(CONTENT))))
    if usage_event:
        payloads.append({**chunk(), "choices": [], "usage": usage(len(CONTENT))})
    payloads.append("[DONE]")
    return sse(*payloads)


def run(pieces: list[bytes], include_usage: bool = False, choices: int = 1) -> tuple[bytes, bytes, Relay]:
    relay = Relay(OURS, MODEL, choices, include_usage)
    sent = b"".join(relay.feed(piece) for piece in pieces)
    return sent, relay.finish(), relay


def events(data: bytes) -> list[Any]:
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    return [part if part == "data: [DONE]" else msgspec.json.decode(part.removeprefix("data: ")) for part in parts]


@pytest.mark.parametrize(
    ("include_usage", "running_usage", "role_first"), [(False, True, True), (True, False, False), (True, True, False)]
)
def test_split_at_every_byte_gives_the_same_bytes(include_usage: bool, running_usage: bool, role_first: bool) -> None:
    stream = engine_stream(running_usage, role_first)
    whole = run([stream], include_usage)[:2]
    assert len(events(b"".join(whole))) == len(CONTENT) + role_first + 2 + include_usage
    for cut in range(1, len(stream)):
        sent, closing, relay = run([stream[:cut], stream[cut:]], include_usage)
        assert (sent, closing) == whole
        assert relay.complete
    assert run([stream[i : i + 1] for i in range(len(stream))], include_usage)[:2] == whole


@given(st.data())
@examples(nightly=60)
def test_any_cutting_and_line_ending_gives_the_same_events(data: st.DataObject) -> None:
    stream = engine_stream(running_usage=data.draw(st.booleans()), role_first=True)
    whole = run([stream])[:2]
    if data.draw(st.booleans()):
        stream = stream.replace(b"\n", b"\r\n")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert run(pieces)[:2] == whole


def test_text_of_every_event_arrives_unchanged_under_our_id_and_model() -> None:
    sent, closing, _ = run([engine_stream(running_usage=True, role_first=True)], include_usage=True)
    got = events(sent + closing)
    assert "".join(e["choices"][0]["delta"].get("content") or "" for e in got[:-2]) == "".join(CONTENT)
    assert {(e["id"], e["model"]) for e in got[:-1]} == {(OURS, MODEL)}
    assert all("usage" in event and event["usage"] is None for event in got[:-2])
    assert all("matched_stop" not in choice for event in got[:-1] for choice in event["choices"])
    assert got[-2]["choices"] == []
    assert got[-2]["usage"]["completion_tokens"] == len(CONTENT)
    assert got[-1] == "data: [DONE]"


def test_usage_is_absent_unless_asked_for_and_finishing_events_wait_for_the_books() -> None:
    sent, closing, relay = run([engine_stream(running_usage=True, role_first=True)])
    assert all("usage" not in event for event in events(sent + closing) if event != "data: [DONE]")
    assert relay.usage == Usage(5, 6, 2)
    assert b'"finish_reason":"stop"' not in sent.replace(b'\\"', b"")
    assert b'"finish_reason":"stop"' in closing


def test_running_usage_survives_a_stream_that_breaks_off() -> None:
    stream = engine_stream(running_usage=True, role_first=True)
    relay = Relay(OURS, MODEL, 1, include_usage=False)
    relay.feed(stream[: stream.index(b"n\xc3\xaf")])
    assert not relay.complete
    assert relay.usage is not None
    assert relay.usage.completion_tokens == 3


def test_each_choice_may_have_its_own_engine_id_and_must_finish() -> None:
    payloads = [
        chunk("a", id="req_1_0"),
        chunk("b", id="req_1_1", index=1),
        chunk(finish="stop", id="req_1_0"),
        chunk("c", id="req_1_1", index=1),
        chunk(finish="length", id="req_1_1", index=1),
    ]
    sent, closing, relay = run([sse(*payloads, "[DONE]")], choices=2)
    got = [event for event in events(sent + closing) if event != "data: [DONE]"]
    assert {event["id"] for event in got} == {OURS}
    assert len(events(sent)) == 4
    assert relay.complete


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("running_usage", [False, True])
def test_in_place_rewriting_means_what_decoding_spaced_json_means(include_usage: bool, running_usage: bool) -> None:
    stream = engine_stream(running_usage, role_first=True)
    spaced = b"".join(
        b"data: [DONE]\n\n" if e == "data: [DONE]" else b"data: " + json.dumps(e).encode() + b"\n\n"
        for e in events(stream)
    )
    plain, slow = run([stream], include_usage), run([spaced], include_usage)
    assert events(slow[0] + slow[1]) == events(plain[0] + plain[1])
    rewritten = [
        msgspec.json.decode(rewrite_decoded(event, OURS, MODEL, include_usage)) for event in events(stream)[:2]
    ]
    assert events(plain[0])[:2] == rewritten


@pytest.mark.parametrize("kind", [Relay, Collector])
@pytest.mark.parametrize("choices", [1, 2])
def test_what_an_engine_aborts_is_not_complete_and_is_not_passed_on(kind: Any, choices: int) -> None:
    state = Relay(OURS, MODEL, choices, True) if kind is Relay else Collector(OURS, MODEL, choices)
    ends = [chunk(finish="stop", index=1)] if choices == 2 else []
    sent = state.feed(sse(chunk("a"), *ends, chunk(finish="abort"), {"choices": [], "usage": usage(3)}, "[DONE]"))
    assert (state.finished, state.complete) == (False, False)
    assert b"abort" not in sent
    assert state.usage is not None
    assert state.usage.completion_tokens == 3


@pytest.mark.parametrize("more", [{}, chunk("a")])
def test_an_error_event_is_not_passed_on(more: dict[str, Any]) -> None:
    relay = Relay(OURS, MODEL, 1, include_usage=False)
    assert relay.feed(sse(chunk("a"), chunk("a"))) != b""
    assert relay.feed(sse({**more, "error": {"message": "secret path /engine/x", "code": 500}})) == b""
    assert isinstance(relay.error, EngineFailed)
    assert "secret" not in relay.error.message
    assert not relay.complete


@pytest.mark.parametrize("kind", [Relay, Collector])
def test_an_error_event_with_a_4xx_code_is_a_refusal(kind: Any) -> None:
    state = kind(OURS, MODEL, 1, False) if kind is Relay else kind(OURS, MODEL, 1)
    state.feed(sse(chunk("a"), {"error": {"object": "error", "message": "No such grammar.", "code": 400}}))
    assert isinstance(state.error, EngineRefused)
    assert state.error.message == "No such grammar."
    assert not state.complete


@pytest.mark.parametrize("kind", [Relay, Collector])
def test_cached_tokens_of_a_shared_cache_are_nobodys_to_know(kind: Any) -> None:
    for running_usage in (False, True):
        for salted, cached in ((True, 2), (False, 0)):
            seen = UsageTracker(1, salted_cache=salted)
            state: Relay | Collector
            state = Relay(OURS, MODEL, 1, True, seen=seen) if kind is Relay else Collector(OURS, MODEL, 1, seen=seen)
            state.feed(engine_stream(running_usage, role_first=True))
            assert seen.total is not None
            assert (seen.total.prompt_tokens, seen.total.cached_tokens) == (5, cached)
            told = state.finish()
            assert b'"cached_tokens":%d' % cached in told


@given(st.data())
@examples(nightly=40)
def test_what_was_delivered_is_kept_until_the_engine_counts(data: st.DataObject) -> None:
    """Both readers keep the same, whatever path an event takes and however it is cut."""
    running_usage = data.draw(st.booleans())
    stream = engine_stream(running_usage, role_first=data.draw(st.booleans()), usage_event=False)
    whole = [event + b"\n\n" for event in stream.split(b"\n\n") if event]
    number = data.draw(st.integers(0, len(whole)))
    cuts = sorted(data.draw(st.sets(st.integers(1, 200), max_size=4)))
    sent = b"".join(whole[:number])
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    texts = [
        event["choices"][0]["delta"].get("content")
        for event in events(sent)
        if event != "data: [DONE]" and event["choices"]
    ]
    for state in (Relay(OURS, MODEL, 1, False, seen=UsageTracker(1)), Collector(OURS, MODEL, 1, seen=UsageTracker(1))):
        for piece in pieces:
            state.feed(piece)
        delivered = state._usage.delivered
        assert delivered.events == (0 if running_usage else len([text for text in texts if text]))


def test_the_event_that_ends_the_last_choice_may_tell_the_final_count() -> None:
    """Not every engine has an event of its own for it."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    seen = UsageTracker(2)
    for index in (0, 1):
        assert not seen.final
        seen.chunk({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    assert seen.final
    assert seen.total is not None
    assert (seen.total.prompt_tokens, seen.total.completion_tokens) == (5, 4)
    seen.chunk(chunk("more"))
    assert not seen.final, "text came behind it"


def test_comments_and_event_fields_are_skipped() -> None:
    stream = b": ping\n\nevent: message\ndata: " + msgspec.json.encode(chunk("a")) + b"\n\n" + sse("[DONE]")
    sent, *_ = run([stream])
    assert len(events(sent)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {broken\n\n",
        b"data: 7\n\n",
        b"data: " + b"x" * 5_000_000,
        b"data: " + b'{"a":' * 50_000 + b"\n\n",
        b'data: {"id": "\xff"}\n\n',
    ],
    ids=["broken", "a number", "too long", "too deep", "no UTF-8"],
)
def test_nonsense_from_an_engine_is_its_failure(bad: bytes) -> None:
    with pytest.raises(EngineFailed):
        Relay(OURS, MODEL, 1, include_usage=False).feed(bad)
    with pytest.raises(EngineFailed):
        Collector(OURS, MODEL, 1).feed(bad)


@pytest.mark.parametrize("bad", [
    b'"x":-Infinity', b'"x":NaN', b'"x":[Infinity]', b'"x":1 oops', b'"x":', b'"x":01', b'"x":"\xf0\x9f"', b'"\xff":1',
    b'"x":"\\ud83d"', b'"x":"\x00"', b'"x":[1,]', b'"usage":{"prompt_tokens":1,"x":"\xff"}', b'"x":' + b"[" * 50_000,
])  # fmt: skip
def test_an_event_that_is_no_json_is_a_failure_wherever_it_comes(bad: bytes) -> None:
    """Behind the first ones they were passed on unread, and the client's own parser failed."""
    event = msgspec.json.encode(chunk("b"))[:-1] + b"," + bad + b"}"
    for transcoder in (Relay(OURS, MODEL, 1, include_usage=False), Collector(OURS, MODEL, 1)):
        transcoder.feed(sse(chunk("a")) + sse(chunk("NaN, -Infinity")) + sse(chunk('"NaN":NaN')))
        with pytest.raises(EngineFailed, match="not JSON"):
            transcoder.feed(b"data: " + event + b"\n\n")


@pytest.mark.parametrize(
    "event",
    [
        {"choices": {"index": 0}},
        {"choices": [None]},
        {"choices": [{"index": "first", "delta": {}}]},
        {"choices": [{"index": -1, "delta": {}}]},
        {"choices": [{"index": 10**30, "text": "a"}]},
        {"choices": [{"index": 0, "text": ["a"]}]},
        {"choices": [{"index": 0, "delta": "a"}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": {}}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [7]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": "a"}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": [1]}]},
    ],
    ids=str,
)
def test_an_event_of_another_shape_is_the_engines_failure(event: dict[str, Any]) -> None:
    """It was an internal error of ours, for which no engine is left alone."""
    for transcoder in (Relay(OURS, MODEL, 2, include_usage=False), Collector(OURS, MODEL, 2)):
        with pytest.raises(EngineFailed, match="does not have OpenAI's form"):
            transcoder.feed(sse({"object": "chat.completion.chunk", **event}))


def test_a_choice_that_nobody_asked_for_is_the_engines_failure() -> None:
    """Each had a count of its own: 450 of them were more tokens than a lease's end can hold."""
    for transcoder in (Relay(OURS, MODEL, 2, include_usage=False), Collector(OURS, MODEL, 2)):
        transcoder.feed(sse({**chunk("a"), "choices": [{"index": 1, "delta": {"content": "a"}}]}))
        with pytest.raises(EngineFailed, match="was not requested"):
            transcoder.feed(sse({**chunk("a"), "choices": [{"index": 2, "delta": {"content": "a"}}]}))


def test_usage_of_choices_that_nobody_asked_for_counts_nothing() -> None:
    tracker = UsageTracker(2)
    for index in range(450):
        usage = {"prompt_tokens": 3, "completion_tokens": 10_000_000}
        tracker.chunk({"choices": [{"index": index, "delta": {"content": "a"}}], "usage": usage})
    assert tracker.total == Usage(prompt_tokens=3, completion_tokens=20_000_000)


@pytest.mark.parametrize("created", ["today", None, 1.5, [7]])
def test_a_moment_that_is_none_is_left_out(created: object) -> None:
    collector = Collector(OURS, MODEL, 1)
    collector.feed(sse({**chunk("a"), "created": created}))
    assert msgspec.json.decode(collector.finish())["created"] == 0


def test_a_list_where_text_belongs_is_collected_by_nobody() -> None:
    event = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": [{"type": "thinking"}]}}]}
    with pytest.raises(EngineFailed, match="that is not text"):
        Collector(OURS, MODEL, 1).feed(b"data: " + msgspec.json.encode(event) + b"\n\n")


@pytest.mark.parametrize("running_usage", [False, True])
def test_collecting_gives_what_streaming_gives(running_usage: bool) -> None:
    stream = engine_stream(running_usage, role_first=True)
    for size in (1, 7, len(stream)):
        collector = Collector(OURS, MODEL, 1)
        for start in range(0, len(stream), size):
            collector.feed(stream[start : start + size])
        body = msgspec.json.decode(collector.finish())
        assert collector.complete
        assert body["id"] == OURS
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "".join(CONTENT)}
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == len(CONTENT)


def test_collecting_tool_calls_joins_their_arguments() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        event = chunk()
        event["choices"][0]["delta"] = {"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]}
        return event

    collector = Collector(OURS, MODEL, 1)
    collector.feed(
        sse(
            call(0, name="f", arguments='{"a"'), call(0, arguments=":1}"), call(1, name="g"), chunk(finish="tool_calls")
        )
    )
    calls = msgspec.json.decode(collector.finish())["choices"][0]["message"]["tool_calls"]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls] == [
        ("c0", "f", '{"a":1}'),
        ("c1", "g", "{}"),
    ]


def test_collecting_completions_keeps_choices_and_logprobs_apart() -> None:
    def part(index: int, text: str, finish: str | None = None) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [-1.0], "top_logprobs": None, "text_offset": [0]}
        choice = {"index": index, "text": text, "logprobs": logprobs if text else None, "finish_reason": finish}
        return {"id": "x", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}

    collector = Collector(OURS, MODEL, 2)
    collector.feed(sse(part(1, "b"), part(0, "a"), part(0, "c"), part(0, "", "length"), part(1, "", "stop"), "[DONE]"))
    body = msgspec.json.decode(collector.finish())
    assert [(c["text"], c["finish_reason"], c["logprobs"]["tokens"]) for c in body["choices"]] == [
        ("ac", "length", ["a", "c"]),
        ("b", "stop", ["b"]),
    ]


def of_choice(index: int, completion: int, prompt: int = 5) -> dict[str, Any]:
    """An event of one choice with that choice's running usage, as SGLang sends it."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    details = {"prompt_tokens_details": {"cached_tokens": 2}, "reasoning_tokens": 1}
    return chunk("x", id=f"own-{index}", index=index, usage={**counts, **details})


@pytest.mark.parametrize("size", [1, 1_000_000])
@pytest.mark.parametrize("kind", [Relay, Collector])
def test_usage_of_a_lost_stream_sums_its_choices_and_counts_each_prompt_once(kind: Any, size: int) -> None:
    arguments = (False,) if kind is Relay else ()
    stream = sse(of_choice(0, 1), of_choice(1, 1), of_choice(1, 2), of_choice(0, 2), of_choice(1, 3))

    def lost(choices: int, prompts: int, data: bytes) -> Usage | None:
        state = kind(OURS, MODEL, choices, *arguments, seen=UsageTracker(choices, prompts))
        for start in range(0, len(data), size):
            state.feed(data[start : start + size])
        assert not state.complete
        found: Usage | None = state.usage
        return found

    assert lost(2, 1, stream) == Usage(5, 2 + 3, 2, 2)
    assert lost(3, 1, stream) == Usage(5, 2 + 3, 2, 2)
    assert lost(2, 1, stream + sse(chunk("y", index=0))) == Usage(5, 2 + 3, 2, 2)
    two_prompts = sse(of_choice(0, 1), of_choice(1, 4), of_choice(2, 2, prompt=9), of_choice(3, 1, prompt=9))
    assert lost(4, 2, two_prompts) == Usage(5 + 9, 1 + 4 + 2 + 1, 4, 4)
    assert lost(2, 1, b"") is None


@pytest.mark.parametrize("kind", [Relay, Collector])
def test_the_event_without_choices_counts_all(kind: Any) -> None:
    arguments = (False,) if kind is Relay else ()
    state = kind(OURS, MODEL, 2, *arguments)
    state.feed(sse(of_choice(0, 4), of_choice(1, 3), chunk(finish="stop"), chunk(finish="stop", index=1)))
    assert state.usage == Usage(5, 7, 2, 2)
    state.feed(sse({**chunk(), "choices": [], "usage": usage(9)}, "[DONE]"))
    assert state.complete
    assert state.usage == Usage(5, 9, 2)


def test_events_of_several_choices_are_passed_on_as_one_choices_are() -> None:
    stream = sse(of_choice(0, 1), of_choice(1, 1), of_choice(0, 2))
    for include_usage in (False, True):
        sent, _, _ = run([stream], include_usage, choices=2)
        expected = [msgspec.json.decode(rewrite_decoded(event, OURS, MODEL, include_usage)) for event in events(stream)]
        assert events(sent) == expected


def test_usage_that_cannot_be_read_is_no_usage() -> None:
    relay = Relay(OURS, MODEL, 1, include_usage=False)
    relay.feed(sse(chunk("a")))
    relay.feed(sse(chunk("b", usage={"prompt_tokens": "many"})))
    assert relay.usage is None


@pytest.mark.parametrize("running_usage", [False, True])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_characters_are_counted_where_it_is_asked_and_as_a_whole_answers(running_usage: bool, size: int) -> None:
    stream = engine_stream(running_usage, role_first=True)
    counting, plain = Relay(OURS, MODEL, 1, False, counts_characters=True), Relay(OURS, MODEL, 1, False)
    whole = Collector(OURS, MODEL, 1)
    for at in range(0, len(stream), size):
        piece = stream[at : at + size]
        assert counting.feed(piece) == plain.feed(piece)
        whole.feed(piece)
    assert counting.characters == whole.characters
    assert counting.characters
    assert plain.characters is None


@given(pieces=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=6), cut_at=st.integers(0, 6))
def test_a_cut_completion_is_what_had_come_and_the_rest_only_counts(pieces: list[str], cut_at: int) -> None:
    def event(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return sse({"id": "x", "object": "text_completion", "created": 7, "model": "engine-model", "choices": [choice]})

    tracker = UsageTracker(1)
    relay = Relay(OURS, MODEL, 1, True, seen=tracker, chat=False)
    collector = Collector(OURS, MODEL, 1, chat=False)
    sent = b"".join(relay.feed(event(piece)) for piece in pieces[:cut_at])
    collector.feed(b"".join(map(event, pieces[:cut_at])))
    for transcoder in (relay, collector):
        transcoder.cut()
        assert transcoder.satisfied
        assert transcoder.feed(b"".join(map(event, pieces[cut_at:]))) == b""
        assert transcoder.feed(event("", "length") + sse({"choices": [], "usage": usage(3)}, "[DONE]")) == b""
    answer = msgspec.json.decode(collector.finish())
    assert (answer["object"], answer["id"], answer["model"]) == ("text_completion", OURS, MODEL)
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("".join(pieces[:cut_at]), "stop")
    assert answer["usage"]["completion_tokens"] == 3
    *events, last = (sent + relay.finish()).decode().removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    *chunks, finish, told = [msgspec.json.decode(line.removeprefix("data: ")) for line in events]
    assert "".join(one["choices"][0]["text"] for one in chunks) == choice["text"]
    assert [(one["text"], one["finish_reason"]) for one in finish["choices"]] == [("", "stop")]
    assert (told["choices"], told["usage"]["completion_tokens"]) == ([], 3)
    assert {one["object"] for one in (*chunks, finish, told)} == {"text_completion"}


def test_the_choices_of_a_cut_answer_that_had_ended_are_not_ended_again() -> None:
    relay, collector = Relay(OURS, MODEL, 2, False), Collector(OURS, MODEL, 2)
    for transcoder in (relay, collector):
        transcoder.feed(sse(chunk("a", "length", index=1)))
        transcoder.cut()
    [event] = relay.finish().decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    assert [one["index"] for one in msgspec.json.decode(event.removeprefix("data: "))["choices"]] == [0]
    choices = msgspec.json.decode(collector.finish())["choices"]
    assert [(one["index"], one["finish_reason"]) for one in choices] == [(0, "stop"), (1, "length")]


VLLM = (
    b'{"id":"chatcmpl-req_1","object":"chat.completion.chunk","created":7,"model":"engine-model","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":5,'
    b'"total_tokens":5,"completion_tokens":0,"completion_tokens_details":null},"prompt_token_ids":null,'
    b'"prompt_text":null}',
    b'{"id":"chatcmpl-req_1","object":"chat.completion.chunk","created":7,"model":"engine-model","choices":[{"index":0,'
    b'"delta":{"content":",\\"token_ids\\":null"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{'
    b'"prompt_tokens":5,"total_tokens":6,"completion_tokens":1,"completion_tokens_details":null}}',
    b'{"id":"chatcmpl-req_1","object":"chat.completion.chunk","created":7,"model":"engine-model","choices":[{"index":0,'
    b'"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":3,"token_ids":null}],"usage":{'
    b'"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"completion_tokens_details":null}}',
    b'{"id":"chatcmpl-req_1","object":"chat.completion.chunk","created":7,"model":"engine-model","choices":[],"usage":{'
    b'"prompt_tokens":5,"total_tokens":7,"completion_tokens":2},"system_fingerprint":"vllm-0.32.0-f69a7569",'
    b'"metrics":{"time_to_first_token_ms":3.5,"queue_time_ms":0.5}}',
)  # fmt: skip
VLLM_TEXT = (
    b'{"id":"cmpl-req_1","object":"text_completion","created":7,"model":"engine-model","choices":[{"index":0,"text":"a",'
    b'"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"usage":{'
    b'"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}'
)


def test_nothing_of_vllms_own_reaches_a_client() -> None:
    ending = VLLM_TEXT.replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    for payloads in (VLLM, (VLLM_TEXT, VLLM_TEXT, ending, VLLM[-1])):
        stream = b"".join(b"data: " + payload + b"\n\n" for payload in (*payloads, b"[DONE]"))
        sent, closing, relay = run([stream], include_usage=True)
        *told, done = events(sent + closing)
        assert done == "data: [DONE]"
        assert all(set(event) == {"id", "object", "created", "model", "choices", "usage"} for event in told)
        names = {name for event in told for choice in event["choices"] for name in choice}
        assert names <= {"index", "delta", "text", "logprobs", "finish_reason"}
        assert relay.usage == Usage(5, 2)


def test_what_vllms_models_think_has_the_name_it_may_come_back_by() -> None:
    thinking = VLLM[1].replace(b'"content":', b'"reasoning":')
    twice = thinking.replace(b'"delta":{', b'"delta":{"content":null,')
    text = ',"token_ids":null'
    stream = b"".join(b"data: " + payload + b"\n\n" for payload in (VLLM[0], thinking, VLLM[2], VLLM[3], b"[DONE]"))
    sent, closing, relay = run([stream])
    assert events(sent + closing)[1]["choices"][0]["delta"] == {"reasoning_content": text}
    assert relay.text_seen
    unusual = msgspec.json.decode(rewrite_decoded(msgspec.json.decode(twice), OURS, MODEL, False))
    assert unusual["choices"][0]["delta"] == {"content": None, "reasoning_content": text}
    collector = Collector(OURS, MODEL, 1)
    collector.feed(stream)
    message = msgspec.json.decode(collector.finish())["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": text}
