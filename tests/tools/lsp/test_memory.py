"""Answers that are remembered."""

from __future__ import annotations

import msgspec

from tools.lsp.gap import Gap
from tools.lsp.memory import Answer, Memory

ASKED = Gap("x = ", "\n")
ANSWER = Answer("c1", "foo(bar)")


def typed(text: str) -> Gap:
    return msgspec.structs.replace(ASKED, prefix=ASKED.prefix + text)


def test_an_answer_goes_on_where_its_words_were_typed() -> None:
    memory = Memory(10)
    memory.keep(ASKED, ANSWER)
    assert memory.find(ASKED) == ANSWER
    assert memory.find(typed("foo(")) == Answer("c1", "bar)")
    for nothing in ("foo(bar)", "foo(bar))", "fob", "?"):
        assert memory.find(typed(nothing)) is None
    assert memory.find(Gap("x = ", ")\n")) is None
    assert memory.find(Gap("x =", "\n")) is None
    assert memory.find(msgspec.structs.replace(ASKED, path="b.py")) is None


def test_no_answer_is_remembered_at_its_place_only() -> None:
    memory = Memory(10)
    memory.keep(ASKED, Answer("c1", ""))
    assert memory.find(ASKED) == Answer("c1", "")
    assert memory.find(typed("f")) is None


def test_the_newest_answer_that_fits_is_given() -> None:
    memory = Memory(10)
    memory.keep(ASKED, ANSWER)
    memory.keep(typed("fo"), Answer("c2", "rmat()"))
    assert memory.find(typed("for")) == Answer("c2", "mat()")
    assert memory.find(typed("foo")) == Answer("c1", "(bar)")


def test_those_used_longest_ago_are_forgotten() -> None:
    memory = Memory(2)
    first, second, third = (Gap(prefix, "") for prefix in "abc")
    memory.keep(first, ANSWER)
    memory.keep(second, ANSWER)
    assert memory.find(first) is not None
    memory.keep(third, ANSWER)
    assert memory.find(second) is None
    assert memory.find(first) is not None
    nothing = Memory(0)
    nothing.keep(first, ANSWER)
    assert nothing.find(first) is None
