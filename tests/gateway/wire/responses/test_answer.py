"""Streams and bodies of the Responses API, read by OpenAI's SDK."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed, ResponsesUnavailable
from gateway.wire.responses.events import replayed
from tests.examples import examples
from tests.gateway.wire.responses.answers import (
    RESPONSE_ID,
    USED,
    Json,
    accumulated,
    answer,
    call,
    client,
    event,
    read,
    streamed,
    whole,
)

TOOLS: list[Json] = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}},
    {"type": "namespace", "name": "team", "description": "d", "tools": [{"type": "function", "name": "ask"}]},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}},
]
EVERYTHING = [
    event({"role": "assistant", "content": ""}),
    event({"reasoning_content": "I th"}),
    event({"reasoning": "ink"}),
    event({"content": "Pa"}),
    event({"content": "ris"}),
    event(call(0, "", "look", "call_a")),
    event(call(0, '{"at":')),
    event(call(1, '{"who":1}', "team__ask", "call_b")),
    event(call(0, "2}")),
    event(call(2, '{"input":"*** \\"a\\""}', "patch", "call_c")),
    event({}, "tool_calls", usage=USED),
]


async def test_a_stream_has_every_event_that_the_sdk_expects_and_equals_the_whole_body() -> None:
    body = await streamed(EVERYTHING, tools=TOOLS, include=["reasoning.encrypted_content"])
    events = read(body)
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert [one.type for one in events[:2]] == ["response.created", "response.in_progress"]
    added = [one.output_index for one in events if one.type == "response.output_item.added"]
    done = [one.output_index for one in events if one.type == "response.output_item.done"]
    assert added == [0, 1, 2, 3, 4]
    assert sorted(done) == added
    response = accumulated(body)
    assert (response.id, response.status, response.output_text) == (RESPONSE_ID, "completed", "Paris")
    assert response.usage.to_dict() == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }
    thought, said, look, ask, patch = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "I think", [])
    assert thought.encrypted_content.startswith("slip1.")
    assert (said.content[0].text, said.status) == ("Paris", "completed")
    assert (look.type, look.name, look.call_id, look.arguments) == ("function_call", "look", "call_a", '{"at":2}')
    assert (ask.name, ask.namespace, ask.call_id, ask.arguments) == ("ask", "team", "call_b", '{"who":1}')
    assert (patch.type, patch.name, patch.input, patch.call_id) == ("custom_tool_call", "patch", '*** "a"', "call_c")
    same = await whole(EVERYTHING, tools=TOOLS, include=["reasoning.encrypted_content"])
    stored = msgspec.json.encode(same)
    assert accumulated(b"".join(replayed(stored))).to_dict()["output"] == response.to_dict()["output"]
    again = read(b"".join(replayed(stored)))
    assert [one.sequence_number for one in again] == [*range(len(again))]
    kinds = [[one.type for one in each if not one.type.endswith("delta")] for each in (again, events)]
    assert sorted(kinds[0]) == sorted(kinds[1])
    last = msgspec.json.decode(body.rpartition(b"data: ")[2])
    for ours in (same, last["response"]):
        del ours["created_at"], ours["completed_at"]
    assert same == last["response"]


async def test_a_whole_body_is_a_response_of_the_sdk() -> None:
    body = await whole(EVERYTHING, tools=TOOLS, metadata={"a": "b"}, instructions="Be brief", temperature=0.5)
    raw = msgspec.json.encode(body)
    response = client(raw, "application/json").responses.create(model="m", input="hi")
    assert (response.object, response.output_text) == ("response", "Paris")
    assert (response.metadata, response.instructions, response.temperature) == ({"a": "b"}, "Be brief", 0.5)
    assert body["store"] is False, "OpenAI's default is true, and nothing was stored"
    assert body["tools"] == TOOLS
    assert len({item["id"] for item in body["output"]}) == 5


@pytest.mark.parametrize(
    ("deltas", "status_of_items"),
    [
        ([{"content": "Par"}], ["incomplete"]),
        ([{"reasoning_content": "I"}], ["incomplete"]),
        ([{"content": "a"}, call(0, '{"at":', "look", "c")], ["completed", "incomplete"]),
        ([call(0, '{"a":1}', "look", "c"), call(1, "", "look", "d")], ["completed", "incomplete"]),
        ([], ["incomplete"]),
    ],
)
@pytest.mark.parametrize("told", ["length", "max_tokens"])
async def test_a_cut_response_is_incomplete_and_never_completed(
    deltas: list[Json], status_of_items: list[str], told: str
) -> None:
    engine = [*map(event, deltas), event({}, told, usage=USED)]
    events = read(await streamed(engine))
    last = events[-1]
    assert last.type == "response.incomplete"
    assert not [one for one in events if one.type == "response.completed"]
    assert (last.response.status, last.response.incomplete_details.reason) == ("incomplete", "max_output_tokens")  # type: ignore[union-attr]
    assert [item.status for item in last.response.output] == status_of_items  # type: ignore[union-attr]
    body = await whole(engine)
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["usage"]["output_tokens"] == 7


async def test_a_failed_stream_ends_with_what_came_so_far_and_the_next_number() -> None:
    made = await answer(streams=True)
    sent = made.feed(event({"content": "Par"}))
    events = read(sent + made.failed(EngineFailed("The engine broke off.")))
    assert [one.sequence_number for one in events] == list(range(len(events)))
    response: Any = events[-1].response  # type: ignore[union-attr]
    assert (events[-1].type, response.status) == ("response.failed", "failed")
    assert (response.error.code, response.error.message) == ("server_error", "The engine broke off.")
    assert (response.output[0].content[0].text, response.output[0].status) == ("Par", "incomplete")


async def test_a_response_that_cannot_be_stored_fails_although_its_end_was_written() -> None:
    made = await answer(streams=True, store=True)
    sent = made.feed(event({"content": "Paris"}) + event({}, "stop", usage=USED))
    made.finish()
    events = read(sent + made.failed(ResponsesUnavailable("The store is away.")))
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert events[-1].type == "response.failed"
    assert not [one for one in events if one.type == "response.completed"]


async def test_a_cut_item_stays_incomplete_in_a_response_that_cannot_be_stored() -> None:
    made = await answer(streams=True, store=True)
    sent = made.feed(event({"content": "Par"}) + event({}, "length", usage=USED))
    made.finish()
    events = read(sent + made.failed(ResponsesUnavailable("The store is away.")))
    assert [item.status for item in events[-1].response.output] == ["incomplete"]  # type: ignore[union-attr]


async def test_a_call_without_arguments_has_an_object_and_a_custom_tool_takes_text_that_is_no_json() -> None:
    engine = [event(call(0, "", "look", "a")), event(call(1, "plain", "patch", "b")), event({}, "stop")]
    look, patch = (await whole(engine, tools=TOOLS))["output"]
    assert (look["arguments"], patch["input"]) == ("{}", "plain")
    assert accumulated(await streamed(engine, tools=TOOLS)).output[0].arguments == "{}"


def _delta(kind: str, text: str, number: int) -> Json:
    return call(number, text, f"f{number}", f"call_{number}") if kind == "call" else {kind: text}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["content", "content", "content", "reasoning_content", "reasoning_content", "refusal", "call"]
            ),
            st.text(max_size=3),
        ),
        max_size=16,
    ),
    st.sampled_from(["stop", "length"]),
    st.integers(1, 40),
)
@examples(nightly=400, gate=60)
async def test_every_stream_adds_up_to_the_whole_body(parts: list[tuple[str, str]], reason: str, piece: int) -> None:
    deltas = [_delta(kind, text, sum(one[0] == "call" for one in parts[:at])) for at, (kind, text) in enumerate(parts)]
    engine = b"".join([*map(event, deltas), event({}, reason, usage=USED)])
    pieces = [engine[start : start + piece] for start in range(0, len(engine), piece)]
    body, same = await streamed(pieces), await whole([engine])
    payloads = [line.partition(b"\ndata: ")[2] for line in body.split(b"\n\n") if line]
    events: list[Json] = [msgspec.json.decode(payload) for payload in payloads]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    grown: dict[int, str] = {}
    begun: list[int] = []
    ended: list[int] = []
    for one in events:
        at = one.get("output_index", -1)
        if one["type"] == "response.output_item.added":
            begun.append(at)
        elif one["type"] == "response.output_item.done":
            ended.append(at)
        elif one["type"].endswith(".delta"):
            assert at in begun
            assert at not in ended
            grown[at] = grown.get(at, "") + one["delta"]
    assert begun == sorted(ended) == list(range(len(same["output"])))
    for at, item in enumerate(same["output"]):
        part = item["content"][0] if "content" in item else {"text": item["arguments"]}
        assert grown.get(at, "") == part.get("text", part.get("refusal"))
    final = events[-1]["response"]
    assert final["output"] == same["output"]
    assert events[-1]["type"] == f"response.{'incomplete' if reason == 'length' else 'completed'}"


async def test_a_forced_call_whose_name_comes_with_each_chunk_is_one_item() -> None:
    """TensorRT-LLM writes them so, without an id."""
    events = [event(call(0, piece, "look")) for piece in ('{"a', 't":', " 1", "}")]
    tools: Any = [{"type": "function", "name": "look"}]
    asked: Any = {"tools": tools, "tool_choice": {"type": "function", "name": "look"}}

    streamed_output = accumulated(await streamed([*events, event({}, "stop")], **asked)).output

    for item in streamed_output[0].to_dict(), (await whole([*events, event({}, "stop")], **asked))["output"][0]:
        assert (item["name"], item["arguments"]) == ("look", '{"at": 1}')
    assert len(streamed_output) == 1
