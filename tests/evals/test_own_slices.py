"""A tenant's own questions: every check in every way it can be right, wrong and not a check at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evals.slices.catalogue import Catalogue
from evals.slices.files.error import SliceFileError
from evals.slices.item import Source
from tests.evals import published


def slice_of(folder: Path, *rows: dict[str, Any], name: str = "mine") -> Source:
    file = folder / "own" / f"{name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(published.lines(list(rows)))
    return Catalogue(folder).find(name)


def row(check: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "?"}], "check": check, **more}


def test_a_line_is_a_conversation_and_its_check(tmp_path: Path) -> None:
    one = slice_of(tmp_path, *published.OWN, name="sums")
    first, second = one.item(0), one.item(1)
    assert one.size == 2
    assert first.messages == tuple(published.OWN[0]["messages"])
    assert (first.cluster, first.max_tokens, first.slice) == ("sums", 16, "sums")
    assert (second.cluster, second.max_tokens) == ("sums/2", 256), "by itself, a line is a cluster of its own"


SCHEMA = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"kind": "exact", "answer": "Yes é"}, ["Yes é", " Yes e\u0301\n"], ["yes é", "Yes é.", ""]),
        ({"kind": "exact", "answer": ["yes", "ja"], "ignore_case": True}, ["YES", "Ja"], ["nein", "yes ja"]),
        ({"kind": "numeric", "answer": 4}, ["4", "It is 4.0.", "2 + 2 = 4"], ["5", "four", ""]),
        ({"kind": "numeric", "answer": 0.1, "tolerance": 0.05}, ["0.15", "0.05"], ["0.1501", "-0.1"]),
        ({"kind": "schema", "schema": SCHEMA}, ['{"age": 3}', '```json\n{"age": 0}\n```'],
         ['{"age": -1}', '{"age": "3"}', "{}", 'Here: {"age": 3}', "", '{"age": NaN}', "[" * 100_000]),
        ({"kind": "regex", "pattern": r"\bv\d+\b"}, ["use v12 now"], ["v", "V1x"]),
        ({"kind": "regex", "pattern": "a+", "whole": True}, ["aaa"], ["aab", ""]),
        ({"kind": "contains", "all": ["sea", "SKY"], "none": ["sun"]}, ["Sky over sea"], ["sea", "sky sea sun", ""]),
        ({"kind": "contains", "any": ["one", "two"]}, ["two"], ["three"]),
        ({"kind": "contains", "none": ["sun"]}, ["moon"], ["Sun", ""]),
        ({"kind": "refusal", "declines": True}, ["I can't help with that."], ["Sure.", ""]),
        ({"kind": "refusal", "declines": False}, ["Sure."], ["I can't help with that.", ""]),
    ],
)  # fmt: skip
def test_a_check_takes_right_answers_only(
    tmp_path: Path, check: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    item = slice_of(tmp_path, row(check)).item(0)
    assert [answer for answer in right if item.score(answer) != 1.0] == []
    assert [answer for answer in wrong if item.score(answer) != 0.0] == []


@pytest.mark.usefixtures("usual_sandbox")
def test_code_is_run(tmp_path: Path) -> None:
    item = slice_of(
        tmp_path,
        row({"kind": "code", "entry_point": "twice", "test": "assert twice(3) == 6\nassert twice('a') == 'aa'"}),
    ).item(0)
    assert item.score("```python\ndef twice(x):\n    return x + x\n```") == 1
    assert item.score("def twice(x): return 6") == 0
    assert item.score("Twice is two times.") == 0
    assert item.score("") == 0


def test_a_pattern_that_never_ends_is_ended(tmp_path: Path) -> None:
    item = slice_of(tmp_path, row({"kind": "regex", "pattern": r"(a+)+$"})).item(0)
    assert item.score("a" * 40 + "b") == 0, "of itself it would take years"


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"check": {"kind": "guess"}}, "check.kind", "invalid value 'guess'"),
        ({"check": {"answer": "x"}}, "check.kind", "missing"),
        ({"check": {"kind": "exact"}}, "check.answer", "missing"),
        ({"check": {"kind": "exact", "answer": []}}, "check.answer", "length >= 1"),
        ({"check": {"kind": "exact", "answer": "x", "ignorecase": True}}, "check", "unknown field `ignorecase`"),
        ({"check": {"kind": "numeric", "answer": "4"}}, "check.answer", "expected `float`"),
        ({"check": {"kind": "numeric", "answer": 4, "tolerance": -1}}, "check.tolerance", ">= 0"),
        ({"check": {"kind": "regex", "pattern": "("}}, "check.pattern", "no regular expression"),
        ({"check": {"kind": "schema", "schema": {"type": "objekt"}}}, "check.schema", "objekt"),
        ({"check": {"kind": "schema", "schema": {"$ref": "http://127.0.0.1:1/x.json"}}}, "check.schema", "127.0.0.1"),
        ({"check": {"kind": "schema", "schema": {"$ref": "file:///etc/passwd"}}}, "check.schema", "/etc/passwd"),
        ({"check": {"kind": "contains"}}, "check", "one of all, any and none"),
        ({"check": {"kind": "code", "entry_point": "a b", "test": "1"}}, "check.entry_point", "no name"),
        ({"check": {"kind": "code", "entry_point": "f", "test": "("}}, "check.test", "no Python"),
        ({"messages": []}, "messages", "length >= 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "invalid enum value 'tool'"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "messages[1].role",
         "must be of the user"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"reference": "no"}, "reference", "does not pass its own check"),
        ({"weight": 2}, "", "unknown field `weight`"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], field: str, said: str) -> None:
    good = row({"kind": "exact", "answer": "yes"}, cluster="x")
    with pytest.raises(SliceFileError) as caught:
        slice_of(tmp_path, good, good | change)
    assert (caught.value.line, caught.value.field) == (2, field), str(caught.value)
    assert said in str(caught.value)


def test_the_file_names_the_slice(tmp_path: Path) -> None:
    for name in ("Mine", "my slice", "-a", "a" * 64):
        with pytest.raises(SliceFileError, match="named after its file"):
            slice_of(tmp_path, row({"kind": "exact", "answer": "x"}), name=name)
        (tmp_path / "own" / f"{name}.jsonl").unlink()


@pytest.mark.usefixtures("usual_sandbox")
def test_the_guides_lines_are_read(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "add-a-slice.md").read_text()
    rows = [line.strip() for line in guide.splitlines() if line.strip().startswith('{"messages"')]
    assert {json.loads(one)["check"]["kind"] for one in rows} == {
        "exact", "numeric", "schema", "regex", "contains", "code", "refusal",
    }  # fmt: skip
    assert slice_of(tmp_path, *map(json.loads, rows)).size == len(rows)
