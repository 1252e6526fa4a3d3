"""Items become the messages that a chat request would have, and errors name the items."""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.errors import InvalidJson, RequestError
from contracts.generation import ChatPrompt
from gateway.wire.openai.schema import AssistantMessage
from gateway.wire.responses.conversation import Conversation
from gateway.wire.responses.decode import RequestDecoder
from gateway.wire.responses.schema import Item, MessageItem, ReasoningItem, ReasoningText, ResponsesRequest
from gateway.wire.responses.sealed import MAX_BYTES, MAX_CHARACTERS, sealed
from gateway.wire.responses.stored import input_json, item_in, items_in
from tests.costs.meter import Meter
from tests.gateway.wire.openai import preparing
from tests.gateway.wire.responses.answers import CALLER, FORMAT, TARGET, USED, Json, call, event, prepared, whole

USER: Json = {"role": "user", "content": "hi"}
THOUGHT: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
CALL: Json = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
IMAGE: Json = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
RESULT: Json = {"type": "function_call_output", "call_id": "c1", "output": "r"}


def said(text: str) -> Json:
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip


def called(*calls: tuple[str, str, str]) -> list[Json]:
    return [
        {"id": id_, "function": {"name": name, "arguments": arguments}, "type": "function"}
        for id_, name, arguments in calls
    ]


async def messages(items: Any, **fields: Any) -> list[Json]:
    prompt = (await prepared(input=items, **fields)).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    return list(prompt.messages)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("hi", [USER]),
        ([USER, {"role": "assistant", "content": "a"}], [USER, {"role": "assistant", "content": "a"}]),
        ([USER, said("a"), said("b")], [USER, *({"role": "assistant", "content": text} for text in "ab")]),
        (
            [USER, THOUGHT, said("a"), CALL, RESULT],
            [
                USER,
                {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "hm",
                    "tool_calls": called(("c1", "f", '{"a":1}')),
                },
                {"role": "tool", "tool_call_id": "c1", "content": "r"},
            ],
        ),
        (
            [USER, CALL, {**CALL, "call_id": "c2", "arguments": ""}, said("late"), RESULT, {**RESULT, "call_id": "c2"}],
            [
                USER,
                {
                    "role": "assistant",
                    "content": "late",
                    "tool_calls": called(("c1", "f", '{"a":1}'), ("c2", "f", "{}")),
                },
                {"role": "tool", "tool_call_id": "c1", "content": "r"},
                {"role": "tool", "tool_call_id": "c2", "content": "r"},
            ],
        ),
        (
            [USER, CALL, RESULT, {**CALL, "call_id": "c2"}, {**RESULT, "call_id": "c2", "output": []}],
            [
                USER,
                {"role": "assistant", "tool_calls": called(("c1", "f", '{"a":1}'))},
                {"role": "tool", "tool_call_id": "c1", "content": "r"},
                {"role": "assistant", "tool_calls": called(("c2", "f", '{"a":1}'))},
                {"role": "tool", "tool_call_id": "c2", "content": ""},
            ],
        ),
        (
            [{"type": "custom_tool_call", "call_id": "c", "name": "p", "input": 'x"'}],
            [{"role": "assistant", "tool_calls": called(("c", "p", '{"input":"x\\""}'))}],
        ),
        (
            [{**CALL, "namespace": "n"}],
            [{"role": "assistant", "tool_calls": called(("c1", "n__f", '{"a":1}'))}],
        ),
        (
            [{"type": "reasoning", "encrypted_content": sealed("été"), "summary": []}, said("a")],
            [{"role": "assistant", "content": "a", "reasoning_content": "été"}],
        ),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "not what it thought"}]}, said("a")],
            [{"role": "assistant", "content": "a"}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        ),
        (
            [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, USER],
            [{"role": "system", "content": "a\n\nb"}, USER],
        ),
    ],
)
async def test_items_are_the_messages_of_a_chat(items: Any, expected: list[Json]) -> None:
    assert await messages(items) == expected
    if not isinstance(items, str):
        stored = input_json((await prepared(input=items)).details.asked.items, "resp_1")  # type: ignore[attr-defined]
        again = msgspec.json.encode(items_in(stored, b'{"output":[]}'))
        assert await messages(msgspec.json.decode(again)) == expected, "and so they are after they were stored"


@pytest.mark.parametrize(
    ("arguments", "reason", "sent"),
    [
        ('{"a":', "length", '{"INVALID_JSON":"{\\"a\\":"}'),
        ('["a"]', "tool_calls", '{"INVALID_JSON":"[\\"a\\"]"}'),
        ("", "length", "{}"),
        ("null", "tool_calls", "{}"),
        ('{"a": 1}', "tool_calls", '{"a": 1}'),
    ],
)
async def test_a_stored_call_without_an_object_does_not_end_its_conversation(
    arguments: str, reason: str, sent: str
) -> None:
    tools: Any = [{"type": "function", "name": "f"}]
    body = await whole([event(call(0, arguments, "f", "c")), event({}, reason)], tools=tools)
    stored = input_json((await prepared()).details.asked.items, "resp_1")  # type: ignore[attr-defined]
    asked = FORMAT.decode(msgspec.json.encode({"model": "m", "input": "go on", "previous_response_id": "resp_1"}))

    for output in (
        items_in(stored, msgspec.json.encode(body))[1:],
        [item_in(msgspec.json.encode(item)) for item in body["output"]],
    ):
        made = await FORMAT.prepare(replace(asked, history=tuple(output)), "req_0123", CALLER, "salt", TARGET)

        assert isinstance(made.generation.prompt, ChatPrompt)
        assert made.generation.prompt.messages[0]["tool_calls"] == called(("c", "f", sent))


async def test_a_response_goes_back_as_the_chat_that_it_was() -> None:
    tools: Any = [{"type": "function", "name": "f"}]
    output = (
        await whole(
            [event({"reasoning_content": "hm"}), event({"content": "a"}), event(call(0, "{}", "f", "c")),
             event({}, "tool_calls", usage=USED)],
            tools=tools,
        )
    )["output"]  # fmt: skip
    ours = (await prepared(input=[USER, *output], tools=tools)).generation.prompt
    chat = await preparing.chat(
        TARGET,
        [
            USER,
            {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": called(("c", "f", "{}"))},
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    assert ours == chat.generation.prompt


async def test_settings_are_those_of_a_chat() -> None:
    schema = {"type": "object", "properties": {}}
    ours = await prepared(
        instructions="Be brief.",
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.5,
        text={"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True}},
        reasoning={"effort": "low", "summary": "auto"},
        tools=[{"type": "function", "name": "f", "parameters": schema, "strict": False}],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        prompt_cache_key="k",
    )
    chat = await preparing.chat(
        TARGET,
        [{"role": "system", "content": "Be brief."}, USER],
        max_completion_tokens=9,
        temperature=0.5,
        top_p=0.5,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}},
        reasoning_effort="low",
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema, "strict": False}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        prompt_cache_key="k",
    )
    assert ours.generation.prompt == chat.generation.prompt
    assert ours.generation.sampling == chat.generation.sampling
    assert (ours.session, ours.chain) == (chat.session, chat.chain)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [USER, {**CALL, "arguments": "["}]}, "input[1].arguments"),
        ({"input": [{"type": "item_reference", "id": "msg_unknown"}]}, "input[0].id"),
        ({"input": [{"id": "msg_unknown"}]}, "input[0].id"),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}]}, "input[0].encrypted_content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y.png"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"role": "user", "content": [{**IMAGE, "image_url": "data:"}]}]}, "input[0].content[0].image_url"),
        ({"input": [{**RESULT, "output": [{**IMAGE, "image_url": "data:text/html;base64,aGk="}]}]},
         "input[0].output[0].image_url"),
        ({"input": [{"role": "system", "content": [IMAGE]}]},
         "input[0].content[0].type"),
        ({"input": [{**RESULT, "output": [{**IMAGE, "image_url": "http://x/y.png"}]}]}, "input[0].output[0].image_url"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": "hi", "name": "x"}]}, "input[0].name"),
        ({"input": []}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search", "external_web_access": True}]}, "tools[0].type"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]}, "tools[1].name"),
        ({"tools": [{"type": "namespace", "name": "n" * 40, "tools": [{"type": "function", "name": "f" * 40}]}]},
         "tools[0].tools[0].name"),
        ({"background": True, "store": False}, "store"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"seed": 1}, "seed"),
        ({"surprise": 1}, "surprise"),
        ({"top_k": "quoted"}, "top_k"),
        ({"max_output_tokens": 200_000, "input": "x"}, "max_output_tokens"),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_refused_by_name(fields: Json, param: str) -> None:
    target = preparing.target(None, "sglang")
    if "max_output_tokens" in fields:  # a prompt is counted where the model has a tokenizer
        from engines.tokenizer.tokenizer import Tokenizer

        target = preparing.target(Tokenizer.load(preparing.MODELS / "slipstream-chat"), context_tokens=1_000)
    with pytest.raises(RequestError) as refused:
        await prepared(target, **fields)
    assert refused.value.param == param
    assert "messages[" not in refused.value.message
    assert not re.search(
        r"\bmax_tokens|max_completion_tokens|response_format", refused.value.message.replace(f"'{param}'", "")
    )


@pytest.mark.parametrize("fields", [b'"input": [{"role": "user", "content": "x"}]', b'"tools": [{"name": "f"}]'])
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b",", "at byte {}"),
        (b', "\xff": 1', "not utf-8 (invalid start byte) at byte {}"),
        (b', "user": "\\ud800"', "truncated"),
        (b', "metadata": ' + b"[" * 30_000 + b"]" * 30_000, "nested too deeply"),
    ],
)
def test_broken_json_after_an_item_without_a_type_says_where(fields: bytes, broken: bytes, said: str) -> None:
    body = b'{"model": "m", ' + fields + broken + b"}"
    with pytest.raises(InvalidJson) as refused:
        RequestDecoder(ResponsesRequest).decode(body)
    at = body.find(b"\xff") if b"\xff" in body else len(body) - 1
    assert said.format(at) in refused.value.message


async def test_images_of_results_follow_them() -> None:
    image = {"type": "image_url", "image_url": {"url": IMAGE["image_url"]}}
    calls = [CALL, {**CALL, "call_id": "c2"}, {**RESULT, "output": [{"type": "input_text", "text": "seen"}, IMAGE]}]
    second = {**RESULT, "call_id": "c2", "output": [IMAGE]}
    tools = [
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
        {"role": "tool", "content": "", "tool_call_id": "c2"},
    ]
    assert (await messages([USER, *calls, second]))[2:] == [*tools, {"role": "user", "content": [image, image]}]
    *_, user = await messages([USER, *calls, second, USER])
    assert user == {"role": "user", "content": [image, image, {"type": "text", "text": "hi"}]}
    *_, user, assistant = await messages([USER, *calls, second, said("a")])
    assert user == {"role": "user", "content": [image, image]}
    assert assistant == {"role": "assistant", "content": "a"}


async def test_an_image_of_a_result_is_refused_by_name_where_the_model_reads_text_only() -> None:
    from engines.tokenizer.tokenizer import Tokenizer

    target = preparing.target(Tokenizer.load(preparing.MODELS / "slipstream-chat"), context_tokens=1_000)
    with pytest.raises(RequestError, match=r"reads text only, and input\[1\].*is an image"):
        await prepared(target, input=[USER, {**RESULT, "output": [IMAGE]}])


async def test_an_error_that_quotes_a_path_is_still_an_error() -> None:
    for quoted in ("messages[7].content", "messages[0].tool_calls[9].function", "messages[99999999999]"):
        with pytest.raises(RequestError, match="top_k"):
            await prepared(top_k=quoted)


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"role": "user", "content": "hi", "status": None, "id": None}]},
        {"input": [{**CALL, "namespace": None, "caller": {"type": "direct"}, "unheard": None}, RESULT]},
        {"tools": [{"type": "web_search", "external_web_access": False}], "tool_choice": "auto"},
        {"truncation": "disabled", "background": False, "top_logprobs": 0, "conversation": None, "user": "u"},
        {"include": ["reasoning.encrypted_content"], "client_metadata": {"a": 1}, "stream_options": None},
        {"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]},
    ],
)
async def test_what_has_no_effect_is_taken(fields: Json) -> None:
    prompt = (await prepared(**fields)).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tools is None
    assert prompt.tool_choice is None


async def test_a_grammar_is_read_by_the_model() -> None:
    tool = {"type": "custom", "name": "patch", "description": "Patches.", "format": {
        "type": "grammar", "syntax": "lark", "definition": "start: WORD"}}  # fmt: skip
    prompt = (await prepared(tools=[tool], tool_choice={"type": "custom", "name": "patch"})).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tools is not None
    [made] = prompt.tools
    assert made["function"]["description"].endswith("lark grammar:\nstart: WORD")
    assert made["function"]["parameters"]["required"] == ["input"]
    assert prompt.tool_choice == {"type": "function", "function": {"name": "patch"}}


def test_an_id_with_a_nul_character_is_refused_before_the_generation() -> None:
    with pytest.raises(RequestError, match="NUL"):
        input_json([MessageItem(role="user", content="x", id="a\0")], "resp_1")


def thoughts(count: int, text: str) -> list[tuple[str, Item]]:
    return [(f"input[{at}]", ReasoningItem(encrypted_content=sealed(text))) for at in range(count)]


def test_reasoning_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    """Five kilobytes hold four megabytes: a body of many made a gateway hold gigabytes."""
    text = "a" * (MAX_BYTES - 1)
    Conversation().extend(thoughts(MAX_CHARACTERS // MAX_BYTES, text))
    with pytest.raises(RequestError, match="limit of one request") as raised:
        Conversation().extend(thoughts(MAX_CHARACTERS // MAX_BYTES + 1, text))
    assert raised.value.param == "input[2].encrypted_content"


def test_thousands_of_items_in_a_turn_are_joined_once() -> None:
    """Adding each to the text so far held the event loop for seconds."""
    long = "é" * 1_000_000
    first, more = (ReasoningItem(content=[ReasoningText(text)]) for text in (long, "a"))
    conversation = Conversation()
    meter = Meter()
    with meter.for_bytes():
        meter.start()
        conversation.extend([("input[0]", first), *((f"input[{at}]", more) for at in range(1, 5_000))])
        conversation.extend([("input[5000]", MessageItem(role="assistant", content="b"))])
        allocated_bytes = meter.stop().bytes
    assert allocated_bytes < 10 * sys.getsizeof(long)
    (message,) = conversation.messages
    assert isinstance(message, AssistantMessage)
    assert (message.reasoning_content, message.content) == (long + "a" * 4_999, "b")


async def test_null_fields_of_parts_are_absent() -> None:
    def parts(**null: None) -> list[Json]:
        text, image = {"type": "input_text", "text": "null", **null}, {**IMAGE, **null}
        return [{"role": "user", "content": [text, image]}, CALL, {**RESULT, "output": [text]}]

    assert await messages(parts(file_id=None)) == await messages(parts())
