"""What counts as typing on, over random editing: every keystroke at a place does, another place never does."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from gateway.supersession.lineage import MAX_TYPED, Digests, Keystroke, near

FILE = """from __future__ import annotations

import sys


def first(a, b):
    return a + b


def second(a, b):
    return a * b


def third(items):
    for item in items:
        print(item)
"""
DIGESTS = Digests(b"secret")


def keystroke(prefix: str, suffix: str, **fields: str) -> Keystroke:
    """One of the same person."""
    who = {"organization_id": "o", "key_id": "k", "network": "192.0.2.1", "session": "", "model": "m", "path": ""}
    return Keystroke(**{**who, **fields}, prefix=prefix, suffix=suffix)


def typed_on(older: Keystroke, newer: Keystroke) -> bool:
    """Whether the newer one supersedes the older."""
    return older.place == newer.place and near(older.prefix, newer.prefix)


PLACES = st.integers(FILE.index("def first"), len(FILE))


@given(
    place=PLACES,
    typed=st.text("ab (.\n", min_size=1, max_size=MAX_TYPED),
    closed=st.text(")]}\"' ", max_size=4),
    path=st.sampled_from(["", "a.py"]),
)
def test_typing_and_deleting_are_of_one_lineage_whatever_the_editor_closes(
    place: int, typed: str, closed: str, path: str
) -> None:
    before = keystroke(FILE[:place], FILE[place:], path=path)
    after = keystroke(FILE[:place] + typed, closed + FILE[place:], path=path)
    assert typed_on(before, after)
    assert typed_on(after, before)
    assert DIGESTS.lineage(before) == DIGESTS.lineage(after)
    assert DIGESTS.prefix(before, len(after.prefix)) == DIGESTS.prefix(after, len(before.prefix))


@given(first=PLACES, second=PLACES)
def test_two_gaps_of_one_file_are_not_typed_on(first: int, second: int) -> None:
    """Unless only what editors write by themselves stands between them."""
    one, other = sorted((first, second))
    if FILE[one:other].strip(" \t\r\n)]}>\"'`,;:"):
        assert not typed_on(keystroke(FILE[:one], FILE[one:]), keystroke(FILE[:other], FILE[other:]))


@given(prefix=st.text("ab\n"), suffix=st.text("ab\n"))
def test_the_same_request_again_is_not_typed_on(prefix: str, suffix: str) -> None:
    assert not typed_on(keystroke(prefix, suffix), keystroke(prefix, suffix))


def test_more_than_somebody_types_between_two_answers_is_another_place() -> None:
    older = keystroke(FILE, "")
    assert typed_on(older, keystroke(FILE + "x" * MAX_TYPED, ""))
    assert not typed_on(older, keystroke(FILE + "x" * (MAX_TYPED + 1), ""))


@given(field=st.sampled_from(["organization_id", "key_id", "network", "session", "model", "path"]))
def test_nobody_elses_request_is_typed_on(field: str) -> None:
    older, newer = keystroke("a = ", ""), keystroke("a = 1", "", **{field: "other"})
    assert not typed_on(older, newer)
    assert DIGESTS.lineage(older) != DIGESTS.lineage(newer)


def test_a_file_without_a_name_is_known_by_its_first_complete_lines() -> None:
    assert typed_on(keystroke("im", "\nx = 1\n"), keystroke("import", "\nx = 1\n")), "its first line is being typed"
    assert not typed_on(keystroke("# one\na = ", ""), keystroke("# two\na = 1", ""))
    assert keystroke("1\n2\n3\n4\n", "").file == keystroke("1\n2\n3\n5\n6", "").file


def test_texts_of_different_fields_are_told_apart() -> None:
    one = keystroke("", "", session="a", path="b")
    other = msgspec.structs.replace(one, session="", path="ab")
    assert DIGESTS.lineage(one) != DIGESTS.lineage(other)


def test_who_does_not_know_the_secret_cannot_make_the_digests() -> None:
    one, other = DIGESTS, Digests(b"other")
    assert one.lineage(keystroke("a", "")) != other.lineage(keystroke("a", ""))
    assert len(one.lineage(keystroke(FILE, FILE))) == 16
