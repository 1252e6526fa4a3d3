"""llama.cpp's fields: honoured, taken without effect, refused because the answer would be another, unknown."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, MissingField, UnknownField, UnsupportedField
from gateway.wire.config import RequestConfig
from gateway.wire.llama_cpp.decode import choices, predict
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.llama_cpp.schema import REFUSED, Ignored, InfillRequest, LlamaCompletionRequest
from tests.deployment import ROOT

INFILL, COMPLETION = InfillFormat(RequestConfig()), LlamaCompletionFormat(RequestConfig())
IGNORED = tuple(field.encode_name for field in msgspec.structs.fields(Ignored))


def infill(**fields: Any) -> InfillRequest:
    return INFILL.decode(msgspec.json.encode({"input_prefix": "a", "input_suffix": "b", **fields}))


@pytest.mark.parametrize("name", IGNORED)
def test_what_only_steers_llama_cpp_itself_is_taken_whatever_it_holds(name: str) -> None:
    for value in (None, 1, 0.5, True, "x", [], [1], {"a": 1}):
        assert infill(**{name: value}).input_prefix == "a"


@pytest.mark.parametrize("name", REFUSED)
def test_what_says_how_an_answer_shall_be_is_refused_unless_it_is_off(name: str) -> None:
    for off in ("null", '""', "[]", "{}"):
        body = f'{{"input_prefix":"a","input_suffix":"b","{name}":{off}}}'
        assert INFILL.decode(body.encode()).input_prefix == "a"
    with pytest.raises(UnsupportedField) as caught:
        infill(**{name: ["x"]})
    assert caught.value.param == name


def test_an_unknown_field_is_named_with_the_nearest_there_is() -> None:
    with pytest.raises(UnknownField, match=r"'n_predcit' is not a llama\.cpp field .* Did you mean 'n_predict'\?"):
        infill(n_predcit=1)


def test_both_sides_of_a_gap_are_required() -> None:
    with pytest.raises(MissingField) as caught:
        INFILL.decode(b'{"input_prefix":"a"}')
    assert caught.value.param == "input_suffix"


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [({}, None), ({"n_predict": -1}, None), ({"n_predict": 0}, 0), ({"max_tokens": 7}, 7), ({"n_predict": 7}, 7)],
)
def test_how_much_is_asked_for(fields: dict[str, int], tokens: int | None) -> None:
    assert predict(infill(**fields)) == tokens


def test_two_names_of_one_thing_may_not_differ() -> None:
    assert choices(infill(n=3)) == choices(infill(n_cmpl=3, n=3)) == 3
    for fields, param in (({"n_predict": 1, "max_tokens": 2}, "max_tokens"), ({"n_cmpl": 1, "n": 2}, "n")):
        with pytest.raises(InvalidField) as caught:
            infill(**fields)
        assert caught.value.param == param


def test_a_prompt_without_a_token_is_refused() -> None:
    """Fault: an engine got it, and failed."""
    with pytest.raises(InvalidField) as caught:
        COMPLETION.decode(b'{"prompt":[]}')
    assert caught.value.param == "prompt"


def test_a_random_seed_is_none() -> None:
    assert infill(seed=-1).seed is None
    assert infill(seed=5).seed == 5


def test_the_documentation_lists_every_field() -> None:
    told = (ROOT / "docs" / "concepts" / "autocomplete-apis.md").read_text()
    llama_cpp = told.partition("## llama.cpp")[2].partition("## Tabby")[0]
    honoured, _, rest = llama_cpp.partition("These fields are accepted")
    ignored, _, refused = rest.partition("These fields would change")
    names = {
        field.encode_name for kind in (InfillRequest, LlamaCompletionRequest) for field in msgspec.structs.fields(kind)
    }
    assert {name for name in names if f"`{name}`" in honoured} == names - set(IGNORED) - set(REFUSED)
    assert re.findall(r"`([^`]+)`", ignored) == sorted(IGNORED)
    assert re.findall(r"`([^`]+)`", refused.partition(".")[0]) == list(REFUSED)
