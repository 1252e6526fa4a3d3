"""What clients write stays text: control strings, arguments nested too deeply, what templates make of them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidField, RequestError
from engines.tokenizer import control
from engines.tokenizer.control import ControlTokens
from engines.tokenizer.json_value import MAX_DEPTH, MAX_VALUES, JsonBounds, parsed_arguments, require_bounded
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.openai.decode import Decoder
from tests.engines.test_tokenizer import write_model
from tests.examples import examples

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def chat() -> Tokenizer:
    return Tokenizer.load(MODELS / "slipstream-chat")


# Control strings


@given(
    tokens=st.lists(st.text(alphabet="ab<|é", min_size=1, max_size=5), min_size=1, max_size=6, unique=True),
    text=st.text(alphabet="ab<|é ", max_size=60),
    stretch=st.integers(1, 9),
)
@examples(nightly=2_000, gate=100)
def test_control_strings_are_found_as_by_plain_alternatives(tokens: list[str], text: str, stretch: int) -> None:
    found = ControlTokens({"id": index, "content": token, "special": True} for index, token in enumerate(tokens))
    plain = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "SEARCHED_CHARACTERS", stretch)
        assert [match.span() for match in found._matches(text)] == [match.span() for match in plain.finditer(text)]
        assert found.find(text) == next((match[0] for match in plain.finditer(text)), None)


def test_a_search_looks_at_each_character_a_few_times_however_many_control_tokens_there_are() -> None:
    """Gemma has 6,000 unused ones; alternatives tried one after the other took 46 µs at every `<`."""
    names = [f"<unused{number}>" for number in range(6_000)]
    found = ControlTokens({"id": id_, "content": name, "special": True} for id_, name in enumerate(names))
    assert found.find("<" * 1_000 + "<unused" * 1_000) is None
    assert found.find("<<unused5999>") == "<unused5999>"
    widths = list(_widths(import_module("re._parser").parse(found._pattern.pattern)))
    assert max(widths) == 11, "ten digits or the end"


def _widths(pattern: Any) -> Iterator[int]:
    """How many alternatives are tried at each place of a parsed pattern."""
    if isinstance(pattern, tuple) and len(pattern) == 2 and str(pattern[0]) == "BRANCH":
        yield len(pattern[1][1])
    if not isinstance(pattern, str):
        with contextlib.suppress(TypeError):
            for part in pattern:
                yield from _widths(part)


def test_tokens_that_swallow_spaces_cut_as_the_library_does() -> None:
    added = [{"id": 0, "content": "<|user|>", "special": True, "lstrip": True, "rstrip": True}]
    split = list(ControlTokens(added).split("a \n<|user|>  \n b <|user|><|user|>  "))
    assert [part if isinstance(part, str) else part.id for part in split] == ["a", 0, "b", 0, "", 0, ""]


def test_all_private_use_characters_and_a_control_string_are_text(chat: Tokenizer) -> None:
    """This never came back: the mark was the first private-use character that the text did not hold."""
    text = "".join(map(chr, range(0xE000, 0xF900))) + "<|end|>"
    messages = [{"role": "user", "content": text}]
    assert chat.decode(chat.chat_ids(messages)) == text
    assert len([id_ for id_ in chat.chat_ids(messages) if id_ in chat.control_ids]) == 3


@pytest.mark.parametrize("cut", ["[1:]", "[:-1]", "[:2]", "[1:-1]"])
def test_a_template_that_takes_a_control_string_apart_is_the_requests_fault(tmp_path: Path, cut: str) -> None:
    template = "{{ messages[0].content" + cut + " }}<|end|>"
    folder = write_model(tmp_path, [{"content": "<|end|>", "normalized": False}], {"chat_template": template})
    tokenizer = Tokenizer.load(folder)
    with pytest.raises(InvalidField, match="chat template splits") as caught:
        tokenizer.chat_ids([{"role": "user", "content": "<|end|>"}])
    assert caught.value.param == "messages"
    assert tokenizer.chat_ids([{"role": "user", "content": "abcd<|end|>efgh"}])


# Nesting and numbers


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def in_object(depth: int) -> str:
    """An object of so many levels."""
    return f'{{"a":{nested(depth - 1)}}}'


def call_with(arguments: str) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": "x", "tool_calls": [call]}


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_200, 100_000])
@pytest.mark.parametrize("risky", ["", "<|end|>"])
def test_arguments_nested_too_deeply_name_their_field(chat: Tokenizer, depth: int, risky: str) -> None:
    messages = [{"role": "user", "content": risky}, call_with(in_object(depth))]
    with pytest.raises(InvalidField, match=f"nested more than {MAX_DEPTH} levels deep") as caught:
        chat.chat_ids(messages)
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"
    assert chat.chat_ids([call_with(in_object(MAX_DEPTH))])


@pytest.mark.parametrize("bounds", [JsonBounds(), JsonBounds(max_depth=256, max_values=300_000)])
def test_the_settings_are_the_tokenizers_bounds_too(bounds: JsonBounds) -> None:
    """What the gateway's settings let through, the tokenizer refused at numbers of its own."""
    tokenizer = Tokenizer.load(MODELS / "slipstream-chat", bounds)
    config = msgspec.structs.replace(RequestConfig(), max_depth=bounds.max_depth, max_values=bounds.max_values)

    def taken(arguments: str) -> bool:
        message = call_with(arguments)
        try:
            Decoder(config).chat(msgspec.json.encode({"model": "m", "messages": [message]}))
        except RequestError:
            with pytest.raises(InvalidField):
                tokenizer.chat_ids([message])
            return False
        assert tokenizer.chat_ids([message])
        return True

    assert taken(in_object(bounds.max_depth))
    assert not taken(in_object(bounds.max_depth + 1))
    most = bounds.max_values - 100  # the message itself holds some
    assert taken(json.dumps({"x": [0] * most}))
    assert not taken(json.dumps({"x": [0] * (bounds.max_values + 1)}))


def test_more_values_than_a_template_should_walk_through_are_refused(chat: Tokenizer) -> None:
    with pytest.raises(InvalidField, match="commas and brackets"):
        chat.chat_ids([call_with("[" + "[]," * MAX_VALUES + "[]]")])
    parts = [{"type": "text", "text": ""}] * MAX_VALUES
    with pytest.raises(InvalidField, match=f"more than {MAX_VALUES} JSON values"):
        chat.chat_ids([{"role": "user", "content": parts}])
    tool: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"enum": [0] * MAX_VALUES}}}
    with pytest.raises(InvalidField) as caught:
        chat.chat_ids([{"role": "user", "content": "x"}], [tool])
    assert caught.value.param == "tools"


VALUES = st.recursive(st.one_of(st.integers(), st.text(max_size=3)), lambda inner: st.lists(inner, max_size=4))


@given(value=st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_arguments_within_bounds_are_what_json_says(value: Any) -> None:
    assert parsed_arguments(json.dumps(value), "arguments", JsonBounds()) == value
    require_bounded(value, "arguments", JsonBounds())


@pytest.mark.parametrize("text", ["not JSON", "1" * 5_000, "{", "[1]", '"a"', "3"])
def test_arguments_that_are_no_object_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidField, match="'arguments' is not a JSON object") as refused:
        parsed_arguments(text, "arguments", JsonBounds())
    assert refused.value.param == "arguments"


@pytest.mark.parametrize("text", ["", " \n", "null", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parsed_arguments(text, "arguments", JsonBounds()) == {}


def test_what_jinja_says_goes_to_the_log_and_not_to_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": "{{ messages[0].nothing.inner }}"}))
    with pytest.raises(InvalidField) as caught:
        tokenizer.chat_ids([{"role": "user", "content": "hi"}])
    assert "inner" not in caught.value.message
    assert "fails on these messages" in caught.value.message
    assert "UndefinedError" in caplog.text


def test_a_refusal_that_quotes_a_control_string_can_be_sent(tmp_path: Path) -> None:
    template = "{{ raise_exception('no ' + messages[0].content) }}"
    folder = write_model(tmp_path, [{"content": "<|end|>", "normalized": False}], {"chat_template": template})
    with pytest.raises(InvalidField, match="refused: no ") as caught:
        Tokenizer.load(folder).chat_ids([{"role": "user", "content": "x<|end|>" * 500}])
    assert len(caught.value.message.encode()) < 500
