"""The field that msgspec complains of is named rightly, whatever stands in the value."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import choices as choices_module
from contracts.choices import choices
from contracts.misfit import MAX_PATH, MAX_QUOTED, missing_field, sentence_and_path, shortened, unknown_field

FORGED = (
    "A - at `$.[[[[",
    "A - at `$.entries[0].role`",
    " - at `",
    "` - at `$.",
    "x - at `key` in `$.y`",
    "\n",
    "`$.a`",
)
texts = st.text(max_size=20) | st.lists(st.sampled_from(FORGED) | st.text(max_size=3), max_size=5).map("".join)


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["one", "two"]


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    tier: Literal["low", "high"] = "low"
    entries: list[Entry] = []
    named: dict[str, Entry] = {}
    keyed: dict[Literal["a"], int] = {}


def said_of(value: Any) -> str:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(msgspec.json.encode(value), type=Whole)
    return str(refused.value)


@given(texts.filter(lambda text: text not in ("one", "two", "low", "high", "a")))
def test_the_path_is_msgspecs_own_whatever_the_value_says(text: str) -> None:
    for value, path in (
        ({"tier": text}, "tier"),
        ({"entries": [{"role": "one"}, {"role": text}]}, "entries[1].role"),
        ({"named": {text: {"role": text}}}, "named[...].role"),
        ({"keyed": {text: 1}}, "keyed"),
    ):
        sentence, found = sentence_and_path(said_of(value))
        assert (sentence, found) == (f"Invalid enum value {text!r}", path)


@given(texts.filter(lambda text: "` - at `" not in text))
def test_an_unknown_field_keeps_its_whole_name(text: str) -> None:
    """At the top there is no path, and the name ends the sentence."""
    for value, path, known in (({text: 1}, "", Whole), ({"entries": [{text: 1}]}, "entries[0]", Entry)):
        if text not in known.__struct_fields__:
            sentence, found = sentence_and_path(said_of(value))
            assert (unknown_field(sentence), found, missing_field(sentence)) == (text, path, None)


def test_a_missing_field_is_named_where_it_is_missing() -> None:
    sentence, path = sentence_and_path(said_of({"named": {"a - at `$.x`": {}}}))
    assert (missing_field(sentence), path, unknown_field(sentence)) == ("role", "named[...]", None)


@pytest.mark.parametrize("forged", ["[" * 100_000, "[0]" * 100_000, ".a" * 100_000, "a" * 100_000])
@pytest.mark.parametrize("form", ["{}", "A - at `$.{}", "A - at `$.{}`", "A` - at `$.{}", "A` - at `${}"])
def test_no_text_of_a_client_becomes_a_long_path(form: str, forged: str) -> None:
    text = form.format(forged)
    for value in ({"tier": text}, {text: 1}, {"entries": [{text: 1}]}, {"keyed": {text: 1}}):
        assert len(sentence_and_path(said_of(value))[1]) <= MAX_PATH


class CountedSteps:
    """The pattern for the steps of a path, with a count of how many were asked for."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern
        self.steps = 0

    def finditer(self, text: str) -> Any:
        for step in self._pattern.finditer(text):
            self.steps += 1
            yield step


def test_a_path_that_leads_nowhere_is_followed_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedSteps(choices_module._STEP)
    monkeypatch.setattr(choices_module, "_STEP", counted)
    assert choices(Whole, "nothing" + "[0].role" * 1_000) == []
    assert counted.steps <= 2
    assert choices(Whole, "entries[0].role") == ["one", "two"]


def test_a_step_never_spans_an_opening_bracket() -> None:
    """A bracket that could hold others would be looked for again behind each of them."""
    assert choices_module._STEP.findall("[" * 50 + "0]") == ["[0]"]


def test_what_is_quoted_is_bounded() -> None:
    assert shortened("a" * MAX_QUOTED) == "a" * MAX_QUOTED
    assert shortened("a" * 1_000_000) == "a" * MAX_QUOTED + "…"
