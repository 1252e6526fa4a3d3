"""What a model is shown of an Anthropic conversation, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.errors import ContextTooLong, InvalidField, RequestError, SpecialToken, UnsupportedField
from contracts.generation import ChatPrompt
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.anthropic.chat_request import converted
from gateway.wire.prepared import Prepared
from tests.costs.meter import Meter
from tests.engines.test_tokenizer import write_model
from tests.gateway.wire.anthropic.asking import COUNT_TOKENS, HI, MESSAGES, TOOL, asked, prepare, where
from tests.gateway.wire.openai.preparing import CALLER, chat, target

PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def prompt_of(prepared: Prepared) -> ChatPrompt:
    assert isinstance(prepared.generation.prompt, ChatPrompt)
    return prepared.generation.prompt


async def shown(messages: Any, **fields: Any) -> list[dict[str, Any]]:
    """The messages for an engine of whose model nothing is known here."""
    return list(prompt_of(await prepare(messages, target(None, "vllm", context_tokens=4_000), **fields)).messages)


def result(content: Any = None, id_: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, **({} if content is None else {"content": content}), **fields}


def turn(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


USE = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "ö", "n": 1}}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":"ö","n":1}'}}
HELLO = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "system", ["Be brief.\n\nBe kind.", [text("x-anthropic-billing-header: v=1;"), text("Be brief."), text("Be kind.")]]
)
async def test_the_system_prompt_is_one_message_without_the_clients_own_line(system: Any) -> None:
    assert await shown(HI, system=system) == [{"role": "system", "content": "Be brief.\n\nBe kind."}, HELLO]


async def test_the_same_prompt_counts_the_same_in_both_apis() -> None:
    there = await prepare([turn(text("hi"), text("there"))], where(), system="Be brief.")
    here = await chat(
        where(),
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi\n\nthere"}],
        max_tokens=50,
    )
    assert there.prompt_tokens == here.prompt_tokens
    assert there.chain == here.chain
    assert prompt_of(there) == prompt_of(here)
    assert there.exact


async def test_a_loop_of_tools_is_told_in_the_order_of_chat_messages() -> None:
    messages = [
        HELLO,
        turn({"type": "thinking", "thinking": "Hm.", "signature": "unsigned"}, text("I look."), USE, role="assistant"),
        turn(result("two birds"), result([text("a"), text("b")], "b"), text("go on")),
    ]
    assert await shown(messages, tools=[TOOL]) == [
        HELLO,
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "content": "two birds", "tool_call_id": "a"},
        {"role": "tool", "content": "a\n\nb", "tool_call_id": "b"},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (result(), ""),
        (result(""), ""),
        (result([]), ""),
        (result("no such file", is_error=True), "Error: no such file"),
        (result("<tool_use_error>gone</tool_use_error>", is_error=True), "<tool_use_error>gone</tool_use_error>"),
        (result("fine", is_error=False), "fine"),
    ],
)
async def test_every_form_of_a_result_is_text(block: dict[str, Any], told: str) -> None:
    messages = [HELLO, turn(USE, role="assistant"), turn(block)]
    *_, last = await shown(messages)
    assert last == {"role": "tool", "content": told, "tool_call_id": "a"}


async def test_images_of_a_result_follow_it() -> None:
    messages = [HELLO, turn(USE, role="assistant"), turn(result([text("seen"), PIXEL]), text("what is it?"))]
    *_, tool, user = await shown(messages)
    assert tool == {"role": "tool", "content": "seen", "tool_call_id": "a"}
    assert user == {"role": "user", "content": [PART, {"type": "text", "text": "what is it?"}]}
    # clients send each result in a turn of its own
    later = [turn(text("well?")), turn(result("two", "b")), turn(text("go on"), result("three", "c"))]
    *_, first, second, third, user = await shown([*messages[:2], turn(result([PIXEL])), *later])
    assert [one["tool_call_id"] for one in (first, second, third)] == ["a", "b", "c"]
    assert user["content"] == [PART, {"type": "text", "text": "well?"}, {"type": "text", "text": "go on"}]


async def test_an_image_is_sent_as_the_engines_know_it() -> None:
    assert await shown([turn(text("see"), PIXEL)]) == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, PART]}
    ]


async def test_null_fields_of_blocks_are_absent_at_every_depth() -> None:
    """An MCP server's text has null annotations, and clients send it as the result of a call."""

    async def made(**null: None) -> Any:
        text = {"type": "text", "text": "null", **null}
        source = {"type": "base64", "media_type": "image/png", "data": "aGk=", **null}
        blocks = [text, {"type": "image", "source": source, **null}]
        call = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": None}, **null}
        turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [{**result(blocks), **null}]}]
        return await prepare([*HI, *turns], target(None, "vllm", context_tokens=4_000), system=[text])

    plain = await made()
    assert (await made(annotations=None)).generation == plain.generation
    assert '{"at":null}' in str(prompt_of(plain).messages)


async def test_turns_of_one_role_in_a_row_are_one_message() -> None:
    messages = [
        HELLO,
        turn(text("there")),
        turn(text("Yes"), role="assistant"),
        turn(USE, role="assistant"),
        turn(result("x")),
    ]
    assert await shown(messages) == [
        {"role": "user", "content": "hi\n\nthere"},
        {"role": "assistant", "content": "Yes", "tool_calls": [CALL]},
        {"role": "tool", "content": "x", "tool_call_id": "a"},
    ]


@pytest.mark.parametrize("content", ["", [], [{"type": "redacted_thinking", "data": "xx"}]])
async def test_an_assistant_without_words_stays_a_message(content: Any) -> None:
    _, said, _ = await shown([HELLO, {"role": "assistant", "content": content}, HELLO])
    assert said == {"role": "assistant", "content": ""}


REFUSES_LATER = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}"
)


@pytest.mark.parametrize("template", [REFUSES_LATER, REFUSES_LATER.replace(" and not loop.first", " and false")])
async def test_a_later_system_message_is_told_as_the_template_takes_it(tmp_path: Path, template: str) -> None:
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": template}))
    messages = [HELLO, {"role": "system", "content": "Now be brief."}]
    told = prompt_of(await prepare(messages, target(tokenizer, context_tokens=900), system="Be kind.")).messages
    roles = [message["role"] for message in told]
    if template is REFUSES_LATER:
        assert roles == ["system", "user"]
        assert told[1]["content"] == "hi\n\nNow be brief."
    else:
        assert roles == ["system", "user", "system"]


async def test_what_claude_code_sends_is_taken_and_its_output_limit_fits() -> None:
    prepared = await prepare(
        HI,
        where(),
        max_tokens=64_000,
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "high"},
        metadata={"user_id": '{"session_id":"s"}'},
        tools=[TOOL],
        mcp_servers=[],
    )
    assert prepared.generation.sampling.max_tokens == 2_000 - prepared.prompt_tokens
    assert prepared.session == '{"session_id":"s"}'


async def test_without_a_tokenizer_the_limit_is_lowered_by_the_estimate() -> None:
    prepared = await prepare(HI, target(None, "vllm", context_tokens=400), max_tokens=32_000)
    assert prepared.generation.sampling.max_tokens == 400 - prepared.prompt_tokens


@pytest.mark.parametrize(
    ("choice", "tool_choice", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any"}, "required", None),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "look"}, {"type": "function", "function": {"name": "look"}}, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", None),
    ],
)
async def test_a_choice_of_tools_keeps_its_meaning(choice: Any, tool_choice: Any, parallel: bool | None) -> None:
    prompt = prompt_of(await prepare(HI, target(None, "vllm"), tools=[TOOL], tool_choice=choice, max_tokens=5))
    assert (prompt.tool_choice, prompt.parallel_tool_calls) == (tool_choice, parallel)
    assert prompt.tools == (
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": TOOL["input_schema"]}},
    )


@pytest.mark.parametrize(
    ("thinking", "variables"),
    [
        ({"type": "disabled"}, {"enable_thinking": False, "thinking": False}),
        ({"type": "enabled", "budget_tokens": 1_024}, {"enable_thinking": True, "thinking": True}),
        ({"type": "adaptive"}, None),
    ],
)
async def test_thinking_is_a_variable_of_the_template_where_engines_take_them(thinking: Any, variables: Any) -> None:
    assert prompt_of(await prepare(HI, where("vllm"), thinking=thinking)).template_kwargs == variables
    assert prompt_of(await prepare(HI, where("openai"), thinking=thinking)).template_kwargs is None


async def test_sampling_and_the_form_of_the_output_reach_the_engine() -> None:
    schema = {"type": "object"}
    config = {"format": {"type": "json_schema", "schema": schema}}
    prepared = await prepare(
        HI, where("vllm"), temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"], output_config=config
    )
    sampling = prepared.generation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.stop) == (0.5, 0.9, ("END",))
    assert sampling.engine_parameters == {"top_k": 40}
    assert prompt_of(prepared).response_format == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema},
    }


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"max_output_tokens": 5}, RequestError, "max_output_tokens"),
        ({"container": "c"}, UnsupportedField, "container"),
        ({"mcp_servers": [{"url": "x"}]}, UnsupportedField, "mcp_servers"),
        ({"temperature": 1.5}, InvalidField, "temperature"),
        ({"tool_choice": {"type": "auto"}}, InvalidField, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, UnsupportedField, "tools[0].type"),
        ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, UnsupportedField, "tools[1].type"),
        ({"tools": [{**TOOL, "strange": 1}]}, RequestError, "tools[0].strange"),
        ({"thinking": {"type": "often"}}, InvalidField, "thinking.type"),
        ({"messages": []}, InvalidField, "messages"),
        ({"messages": [turn({"type": "document", "source": {}})]}, InvalidField, "messages[0].content[0].type"),
        ({"messages": [turn({"type": "tool_use"})]}, InvalidField, "messages[0].content[0].type"),
        ({"messages": [HELLO, {"role": "assistant", "content": "The"}]}, InvalidField, "messages[1].role"),
        ({"max_tokens": 0}, InvalidField, "max_tokens"),
    ],
)
def test_what_is_not_taken_is_refused_by_name(fields: dict[str, Any], kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as refusal:
        MESSAGES.decode(msgspec.json.encode({**asked(), **fields}))
    assert refusal.value.param == param
    assert param.rpartition(".")[2].rpartition("[")[0] in refusal.value.message


async def test_an_image_elsewhere_is_refused_where_it_stands() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    with pytest.raises(UnsupportedField) as refusal:
        await prepare([HELLO, turn(text("see"), block)])
    assert refusal.value.param == "messages[1].content[1].source"
    with pytest.raises(UnsupportedField) as refusal:
        await prepare([HELLO, turn(USE, role="assistant"), turn(result([text("see"), block]))])
    assert refusal.value.param == "messages[2].content[0].content[1].source"


async def test_a_refusal_names_the_clients_own_place() -> None:
    """A turn has become two messages, and the system prompt one."""
    messages = [HELLO, turn(USE, role="assistant"), turn(text("so"), result("<|end|>"))]
    with pytest.raises(SpecialToken) as refusal:
        await prepare(messages, where("sglang"), system="Be brief.")
    assert refusal.value.param == "messages[2].content[1]"


async def test_a_prompt_that_does_not_fit_is_refused_in_the_words_that_clients_look_for() -> None:
    with pytest.raises(ContextTooLong) as refusal:
        await prepare([turn(text("word " * 5_000))])
    body = msgspec.json.decode(MESSAGES.error_body(refusal.value, "req_1"))
    assert body["type"] == "error"
    assert body["request_id"] == "req_1"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(
        f"prompt is too long: {refusal.value.prompt_tokens} tokens > 2000 maximum."
    )


async def test_a_count_is_what_the_message_is_charged_for() -> None:
    """Tools, results and instructions are part of it; the output limit is not."""
    body = asked([HELLO, turn(USE, role="assistant"), turn(result("two birds"))], system="Be brief.", tools=[TOOL])
    sent = await MESSAGES.prepare(MESSAGES.decode(msgspec.json.encode(body)), "req_1", CALLER, "salt", where())
    del body["max_tokens"]
    counted = await COUNT_TOKENS.prepare(COUNT_TOKENS.decode(msgspec.json.encode(body)), "req_2", CALLER, "s", where())
    assert msgspec.json.decode(COUNT_TOKENS.counted(counted, "req_2")) == {"input_tokens": sent.prompt_tokens}
    assert sent.exact


def test_thousands_of_the_assistants_turns_in_a_row_are_joined_once() -> None:
    """Adding each to the message so far took 20 seconds, and gigabytes."""
    turns = [{"role": "assistant", "content": "x" * 800}] * 9_000
    request = MESSAGES.decode(msgspec.json.encode(asked([*turns, *HI])))
    meter = Meter()
    with meter.for_bytes():
        meter.start()
        said = converted(request, where()).request.messages[0]
        allocated_bytes = meter.stop().bytes
    text = "\n\n".join(["x" * 800] * 9_000)
    assert said.content == text
    assert allocated_bytes < 4 * len(text)
