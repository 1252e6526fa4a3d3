"""Tool calls: what is asked for, what the output is held to, and what is read out of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidField, RequestError, UnsupportedField
from engines.drivers.error_bodies import MAX_SENTENCE
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.grammar.spec import lark_spec
from engines.embedded.http.chat_format import ChatFormat
from engines.embedded.output import Delta, Finish
from engines.embedded.tools import reader
from engines.embedded.tools.calls import CallArguments, CallStart, Text
from engines.embedded.tools.choice import NamedChoice, Tool, ToolUse, read_tools
from engines.embedded.tools.llama3 import Llama3Parser
from engines.embedded.tools.marked import MarkedParser
from engines.embedded.tools.mistral import MistralParser
from engines.embedded.tools.style import (
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_NAMED,
    MISTRAL_NUMBERED,
    CallStyle,
    call_grammar,
    style_of,
)
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED, request

CHAT = SHIPPED / "slipstream-chat"
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
KNOWN = frozenset({"add", "hi"})
OPEN, CLOSE = "<tool_call>", "</tool_call>"

HERMES_CASES: dict[str, list[tuple[str, ...]]] = {
    'Sure. <tool_call>\n{"name": "add", "arguments": {"a": "}\\"{"}}\n</tool_call>': [
        ("Sure.",),
        ("add", '{"a": "}\\"{"}'),
    ],
    '<tool_call>{"name":"add","arguments":{}}</tool_call>\n<tool_call>\n{"name":"hi","arguments":{}}\n</tool_call>\n': [
        ("add", "{}"),
        ("hi", "{}"),
    ],
    '<tool_call>{"arguments": {"b": 1}, "name": "hi"}</tool_call>  and  more': [("hi", '{"b": 1}'), ("and  more",)],
    '<tool_call>{"name": "hi"}</tool_call>': [("hi", "{}")],
    '<tool_call>{"name": "hi", "arguments": "{\\"b\\": 1}"}</tool_call>': [("hi", '{"b": 1}')],
    '<tool_call>{"name": "other", "arguments": {}}</tool_call>': [
        ('<tool_call>{"name": "other", "arguments": {}}</tool_call>',)
    ],
    '<tool_call>{"arguments": {}, "name": []}</tool_call>': [('<tool_call>{"arguments": {}, "name": []}</tool_call>',)],
    '<tool_call>{"name": "add", "arguments": {"a": 1': [("add", '{"a": 1')],
    '<tool_call>{"name": "ad': [('<tool_call>{"name": "ad',)],
    "<tool_call>nothing": [("<tool_call>nothing",)],
    "no <tool here\n": [("no <tool here\n",)],
    '\n<tool_call>{"name": "add", "arguments": {}}<tool_call>{"name": "hi", "arguments": {}}': [
        ("add", "{}"),
        ("hi", "{}"),
    ],
    "": [],
}
LLAMA3_CASES: dict[str, list[tuple[str, ...]]] = {
    '{"name": "add", "parameters": {"a": 1}}': [("add", '{"a": 1}')],
    '\n{"name": "add", "parameters": {}}; {"name": "hi", "parameters": {"x": []}}': [
        ("add", "{}"),
        ("hi", '{"x": []}'),
    ],
    '{"x": 1} and so on': [('{"x": 1} and so on',)],
    '{"name": "other", "parameters": {}}': [('{"name": "other", "parameters": {}}',)],
    'As {"name": "add", "parameters": {}}': [('As {"name": "add", "parameters": {}}',)],
    '{"name": "add", "parameters": {}} done': [("add", "{}"), ("done",)],
    '{"name": "add", "parameters": {"a"': [("add", '{"a"')],
    '{"na': [('{"na',)],
    "  ": [("  ",)],
}
MARK = "[TOOL_CALLS]"
MISTRAL_CASES: dict[str, list[tuple[str, ...]]] = {
    f'{MARK} [{{"name": "add", "arguments": {{"a": "]}}"}}}}]': [("add", '{"a": "]}"}')],
    f'Sure. {MARK}[{{"name": "add", "arguments": {{}}}}, {{"arguments": {{"x": []}}, "name": "hi", "id": "a"}}] done': [
        ("Sure.",),
        ("add", "{}"),
        ("hi", '{"x": []}'),
        ("done",),
    ],
    f'{MARK}add[ARGS]{{"a": 1}}{MARK}hi[CALL_ID]12345abcd[ARGS] {{}}': [("add", '{"a": 1}'), ("hi", "{}")],
    f'{MARK} {{"name": "hi", "arguments": {{}}}}': [("hi", "{}")],
    f'{MARK}other[ARGS]{{"a": 1}}': [(f'{MARK}other[ARGS]{{"a": 1}}',)],
    f'{MARK} [{{"name": "other", "arguments": {{}}}}]': [(f'{MARK} [{{"name": "other", "arguments": {{}}}}]',)],
    f'{MARK} [{{"name": "add", "arguments": {{"a": 1': [("add", '{"a": 1')],
    f'{MARK} [{{"na': [(f'{MARK} [{{"na',)],
    f'{MARK}[{{"name": "add", "arguments": {{}}}}, ': [("add", "{}")],
    f"{MARK}add[ARGS]{{": [("add", "{")],
    f"{MARK}add[ARG": [(f"{MARK}add[ARG",)],
    f"{MARK} nothing of the kind": [(f"{MARK} nothing of the kind",)],
    f"{MARK}[]": [(f"{MARK}[]",)],
    "a [TOOL list": [("a [TOOL list",)],
    "": [],
}
CASES = [(HERMES, text, found) for text, found in HERMES_CASES.items()]
CASES += [(LLAMA3, text, found) for text, found in LLAMA3_CASES.items()]
CASES += [(MISTRAL, text, found) for text, found in MISTRAL_CASES.items()]


def test_a_call_nested_more_deeply_than_json_is_read_is_text() -> None:
    depth = 100_000
    arguments = '{"a":' * depth + "1" + "}" * depth
    text = f'<tool_call>{{"arguments": {arguments}, "name": "add"}}</tool_call>'
    assert read(HERMES, [text]) == [(text,)]


def test_a_call_that_never_begins_is_not_searched_again_with_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a text of 32,000 characters took milliseconds a token on the event loop."""
    searched = 0

    class Head:
        def match(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
            nonlocal searched
            searched += min(len(text), end) - start
            return whole.match(text, start, end)

    whole = reader._HEAD
    monkeypatch.setattr(reader, "_HEAD", Head())
    text = '{"name": "' + "a" * 20_000 + '", "parameters": {}}'
    assert read(LLAMA3, list(text)) == [(text,)]
    assert searched < reader.LONGEST_HEAD**2
    late = '{"name": "add",' + " " * 2_000 + '"parameters": {}}'
    assert read(LLAMA3, list(late)) == read(LLAMA3, [late]) == [("add", "{}")]


@pytest.mark.parametrize(
    ("style", "before"),
    [
        (HERMES, "a"),
        (HERMES, '<tool_call>{"name": "add", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": {}}'),
        (LLAMA3, ""),
        (LLAMA3, '{"name": "add", "parameters": {}}'),
        (MISTRAL, "a"),
        (MISTRAL, "[TOOL_CALLS]"),
        (MISTRAL, "[TOOL_CALLS] ["),
        (MISTRAL, '[TOOL_CALLS] [{"name": "add", "arguments": {}}'),
    ],
)
def test_spaces_without_end_are_not_searched_again_with_each_token(style: CallStyle, before: str) -> None:
    """Fault: all of them were held, and 30,000 tokens of spaces took 7 ms a token on the event loop."""
    parser = style.parser(KNOWN)
    parser.push(before)
    for _ in range(50):
        parser.push(" " * 100)
    assert isinstance(parser, MarkedParser | Llama3Parser)
    assert len(parser._held) <= reader.LONGEST_SPACE
    text = before + " " * 5_000 + "b"
    assert read(style, list(text)) == read(style, [text])


def read(style: CallStyle, pieces: list[str]) -> list[tuple[str, ...]]:
    """Text and calls in order, with everything that belongs together joined."""
    parser = style.parser(KNOWN)
    found: list[tuple[str, ...]] = []
    events = [event for piece in pieces for event in parser.push(piece)] + parser.flush()
    calls = 0
    for event in events:
        match event:
            case CallStart(index, id_, name):
                assert index == calls
                assert re.fullmatch("[a-zA-Z0-9]{9}" if style.parser is MistralParser else "call_[0-9a-f]{24}", id_)
                calls += 1
                found.append((name, ""))
            case CallArguments(index, text):
                assert index == calls - 1
                found[-1] = (found[-1][0], found[-1][1] + text)
            case Text(text) if found and len(found[-1]) == 1:
                found[-1] = (found[-1][0] + text,)
            case Text(text):
                found.append((text,))
    return found


@pytest.mark.parametrize(("style", "text", "found"), CASES)
def test_calls_and_text_are_told_apart(style: CallStyle, text: str, found: list[tuple[str, ...]]) -> None:
    assert read(style, [text]) == found
    assert read(style, list(text)) == found


@given(st.data())
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    style = data.draw(st.sampled_from([HERMES, LLAMA3, MISTRAL]))
    parts = [OPEN, CLOSE, MARK, "add[ARGS]", "[", "]", "hi[CALL_ID]"]
    parts += ['{"name": "add", ', f'"{style.arguments_key}": ', '{"a": {}}', "}", " ", "\n", "x", ";", '"']
    text = "".join(data.draw(st.lists(st.sampled_from(parts), max_size=12)))
    pieces = []
    rest = text
    while rest:
        size = data.draw(st.integers(1, 8))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert read(style, pieces) == read(style, [text])


def test_arguments_are_told_as_they_come() -> None:
    parser = HERMES.parser(KNOWN)
    parser.push('<tool_call>{"name": "add", "argu')
    assert isinstance(parser.push('ments": {"a": ')[0], CallStart)
    assert parser.push("12") == [CallArguments(0, "12")]


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(CHAT, 2048, Tokenizer.load(CHAT).end_ids, GrammarConfig())
    yield compiler
    compiler.close()


def holds(guide: Any, text: str) -> bool:
    """Whether an answer of this text can end under the grammar."""
    tokenizer = Tokenizer.load(CHAT)
    ids = tokenizer.encode(text)
    state = guide.start()
    taken = state.count_valid(ids)
    for id_ in ids[:taken]:
        state.advance(id_)
    return bool(taken == len(ids) and (state.finished or state.count_valid([min(tokenizer.end_ids)]) == 1))


def written(style: CallStyle, *wanted: tuple[str, str]) -> str:
    """Calls as the style writes them. wanted: arguments and name of each."""
    if style is MISTRAL_NAMED or style is MISTRAL_NUMBERED:
        own = "[CALL_ID]abcd12345" if style is MISTRAL_NUMBERED else ""
        return "".join(f"{MARK}{name}{own}[ARGS]{arguments}" for arguments, name in wanted)
    objects = [f'{{"name": "{name}", "{style.arguments_key}": {text}}}' for text, name in wanted]
    if style is HERMES:
        return "\n".join(f"{OPEN}\n{text}\n{CLOSE}" for text in objects)
    return f"{MARK}[{', '.join(objects)}]" if style is MISTRAL else "; ".join(objects)


@pytest.mark.parametrize("style", [HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED, MISTRAL_NUMBERED])
@pytest.mark.parametrize("may_talk", [False, True])
@pytest.mark.parametrize("several", [False, True])
async def test_an_answer_is_held_to_its_calls(
    compiler: GrammarCompiler, style: CallStyle, may_talk: bool, several: bool
) -> None:
    functions: list[dict[str, Any]] = [{"name": "add", "strict": True, "parameters": ADD}, {"name": "hi"}]
    guide = await compiler.compile(
        lark_spec(call_grammar(style, functions, may_talk=may_talk, several=several), "tools")
    )

    def accepts(text: str) -> bool:
        return holds(guide, text)

    def calls(*wanted: tuple[str, str]) -> str:
        return written(style, *wanted)

    def call(arguments: str, name: str = "add") -> str:
        return calls((arguments, name))

    assert accepts(call('{"a": 1}'))
    assert accepts(call("{}", "hi"))
    assert not accepts(call('{"a": "x"}'))
    assert not accepts(call('{"a": 1, "b": 2}'))
    assert not accepts(call("{}", "other"))
    assert accepts("Hello.") == may_talk
    assert accepts(calls(('{"a": 1}', "add"), ("{}", "hi"))) == several
    # what is enforced is what is read
    assert read(style, [calls(('{"a": 1}', "add"), ("{}", "hi"))]) == [("add", '{"a": 1}'), ("hi", "{}")]
    if style is not LLAMA3:
        assert accepts("Let me see. " + call('{"a": 1}')) == may_talk
        assert not accepts("Let me see. " + call('{"a": "x"}'))


def node(value: str) -> dict[str, Any]:
    """A list of values, by references to a definition and to the schema itself."""
    properties = {"value": {"$ref": "#/$defs/value"}, "next": {"$ref": "#"}}
    literal = {"kind": {"enum": [{"$ref": "#/$defs/value"}]}}
    return {
        "type": "object",
        "properties": {**properties, **literal},
        "required": ["value"],
        "additionalProperties": False,
        "$defs": {"value": {"type": value}},
    }


@pytest.mark.parametrize("style", [HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED, MISTRAL_NUMBERED])
@pytest.mark.parametrize("tools_given", [1, 2])
async def test_references_of_a_tools_schema_lead_to_its_own_definitions(
    compiler: GrammarCompiler, style: CallStyle, tools_given: int
) -> None:
    functions: list[dict[str, Any]] = [
        {"name": "add", "parameters": node("integer")},
        {"name": "hi", "parameters": node("string")},
    ]
    grammar = call_grammar(style, functions[:tools_given], may_talk=False, several=False)
    guide = await compiler.compile(lark_spec(grammar, "tools"))

    assert holds(guide, written(style, ('{"value": 1, "next": {"value": 2}}', "add")))
    assert not holds(guide, written(style, ('{"value": "x"}', "add")))
    assert not holds(guide, written(style, ('{"value": 1, "next": {"value": "x"}}', "add")))
    assert holds(guide, written(style, ('{"value": 1, "kind": {"$ref": "#/$defs/value"}}', "add")))
    if tools_given == 2:
        assert holds(guide, written(style, ('{"value": "x", "next": {"value": "y"}}', "hi")))
        assert not holds(guide, written(style, ('{"value": 1}', "hi")))


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"properties": {"a": {"not": {"type": "string"}}}}, 'Unimplemented keys: ["not"]'),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "references are followed within the schema only"),
        ({"properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}, "look-around"),
        ({"properties": {"a": {"type": "hiccup", "description": "x" * 5_000}}}, "Invalid type: hiccup"),
    ],
)
async def test_why_a_tools_schema_is_refused_is_short_enough_to_be_passed_on(
    compiler: GrammarCompiler, parameters: dict[str, Any], reason: str
) -> None:
    functions = [{"name": "f", "strict": True, "parameters": {"type": "object", **parameters}}]
    grammar = call_grammar(HERMES, functions, may_talk=True, several=True)

    with pytest.raises(InvalidField) as refused:
        await compiler.compile(lark_spec(grammar, "tools"))

    assert reason in refused.value.message
    assert len(refused.value.message) < MAX_SENTENCE
    assert "obj" not in refused.value.message  # nothing of the grammar that stands around the schema


@pytest.mark.parametrize("style", [HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED, MISTRAL_NUMBERED])
async def test_a_tool_without_parameters_takes_none(compiler: GrammarCompiler, style: CallStyle) -> None:
    grammar = call_grammar(style, [{"name": "now"}], may_talk=False, several=False)
    guide = await compiler.compile(lark_spec(grammar, "tools"))

    assert holds(guide, written(style, ("{}", "now")))
    assert not holds(guide, written(style, ('{"x": 1}', "now")))


def tools(*names: str, strict: bool | None = None) -> list[Tool]:
    one = {"type": "function", "function": {"parameters": ADD, "strict": strict}}
    return [msgspec.convert({**one, "function": {**one["function"], "name": name}}, Tool) for name in names]  # type: ignore[dict-item]


def named(name: str) -> NamedChoice:
    return msgspec.convert({"type": "function", "function": {"name": name}}, NamedChoice)


def use(choice: Any = None, parallel: bool | None = None, strict: bool | None = None) -> ToolUse | None:
    return read_tools(tools("add", "hi", strict=strict), choice, parallel, HERMES, GrammarConfig())


@pytest.mark.parametrize(
    ("choice", "parallel", "strict", "held"),
    [
        (None, None, None, False),
        ("auto", True, None, False),
        ("auto", False, None, True),
        ("auto", None, True, True),
        ("required", None, None, True),
        (named("hi"), None, None, True),
    ],
)
def test_only_what_must_be_is_held_to_a_grammar(choice: Any, parallel: Any, strict: Any, held: bool) -> None:
    found = use(choice, parallel, strict)
    assert found is not None
    assert (found.grammar is not None) == held
    assert found.names == ({"hi"} if isinstance(choice, NamedChoice) else {"add", "hi"})
    assert [tool["function"]["name"] for tool in found.tools] == ["add", "hi"]
    assert "strict" not in found.tools[0]["function"]


def test_no_tool_is_called_when_none_is_wanted() -> None:
    assert use("none") is None
    assert read_tools(None, "auto", None, None, GrammarConfig()) is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, "required", None, HERMES), InvalidField, "tool_choice: there are no tools to choose from"),
        ((tools("add"), None, None, None), UnsupportedField, "no tool call format"),
        ((tools("add"), named("hi"), None, HERMES), InvalidField, "no tool is named 'hi'"),
        ((tools("add", "add"), None, None, HERMES), InvalidField, "same name"),
        ((tools(*[f"f{at}" for at in range(129)]), None, None, HERMES), InvalidField, "at most 128"),
        ((tools(*[f"f{at}" for at in range(100)]), None, None, HERMES), InvalidField, "bytes of parameters"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    arguments: tuple[Any, Any, Any, Any], error: type[RequestError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_tools(*arguments, GrammarConfig(max_schema_bytes=5000))


@pytest.mark.parametrize(
    ("template", "style"),
    [
        ("{% if tools %}<tools></tools> <tool_call>{% endif %}", HERMES),
        ("{% if tools is not none %}{{ '<|python_tag|>' }}{% endif %}", LLAMA3),
        ('{% if tools %}Environment: ipython {"name": f, "parameters": {} }{% endif %}', LLAMA3),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}", None),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS] [", MISTRAL),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]f[ARGS]", MISTRAL_NAMED),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]f[CALL_ID]i[ARGS]", MISTRAL_NUMBERED),
        ("{{ messages[0].content }}", None),
        (None, None),
    ],
)
def test_the_template_tells_the_style(template: str | None, style: CallStyle | None) -> None:
    assert style_of(template) is style


def test_a_streamed_call_in_openai_form() -> None:
    found = use()
    form = ChatFormat(request("r", [1]), "m", Tokenizer.load(CHAT), found)
    pieces = ["Well ", "<tool_", 'call>{"name": "add", "arguments": {"a"', ": 1}}", CLOSE]
    data = b"".join(form.chunk(Delta("r", 0, text, 1, at, 0), b"null") for at, text in enumerate(pieces))
    data += form.chunk(Delta("r", 0, "", 1, 9, 0, (), Finish("stop", 3)), b"null")
    chunks = [json.loads(line[6:])["choices"][0] for line in data.decode().strip().split("\n\n")]
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "Well"
    calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    assert (calls[0]["type"], calls[0]["function"]) == ("function", {"name": "add", "arguments": ""})
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'
    assert {call["index"] for call in calls} == {0}
    whole = ChatFormat(request("r", [1]), "m", Tokenizer.load(CHAT), found)
    last = Delta("r", 0, "".join(pieces), 1, 9, 0, (), Finish("stop", 3))
    answer = json.loads(whole.whole([[last]], _usage()))["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"] == "Well"
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}


def _usage() -> Any:
    from engines.embedded.history import RequestUsage

    return RequestUsage(1, 10, 9, 0)


def test_tags_that_show_a_call_are_text_when_generated(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((CHAT / name).read_bytes())
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for id_, content in ((2048, OPEN), (2049, "<|fim_pad|>"), (2050, MARK)):
        definition["added_tokens"].append({"id": id_, "content": content, "special": content == MARK, **flags})
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    tokenizer = Tokenizer.load(tmp_path)
    stream = tokenizer.text_stream()
    assert [stream.step(id_) for id_ in (2048, 2049, 2050, min(tokenizer.end_ids))] == [OPEN, "", MARK, ""]
    assert tokenizer.decode([2048, 2049]) == OPEN
    assert {2048, 2050}.isdisjoint(tokenizer.encode(OPEN + MARK))  # what a user types stays text
