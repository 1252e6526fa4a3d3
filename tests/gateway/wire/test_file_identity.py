"""What belongs to one file, and what does not."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from gateway.wire.file_identity import HEAD_CHARACTERS, file_identity
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from tests.gateway.wire.openai.preparing import CALLER, target

HEAD = "".join(f"import module_{number}\n" for number in range(80))
TEXT = st.text(max_size=60)


@given(st.text(min_size=1, max_size=40), TEXT, TEXT)
def test_a_named_file_is_the_same_wherever_the_cursor_is(path: str, one: str, other: str) -> None:
    assert file_identity("salt", "", path, one) == file_identity("salt", "", path, other) != b""


@given(TEXT, TEXT)
def test_an_unnamed_file_is_known_by_its_head_while_somebody_types_below(one: str, other: str) -> None:
    assert len(HEAD) > HEAD_CHARACTERS
    assert file_identity("salt", "", "", HEAD + one) == file_identity("salt", "", "", HEAD + other) != b""


@given(st.text(st.characters(exclude_characters="\n"), max_size=60), st.text(st.characters(exclude_characters="\n")))
def test_the_line_that_is_typed_is_not_part_of_the_head(one: str, other: str) -> None:
    assert file_identity("salt", "", "", "import os\n" + one) == file_identity("salt", "", "", "import os\n" + other)


def test_what_names_nothing_has_no_identity() -> None:
    assert file_identity("salt", "user", "", "x = ") == file_identity("salt", "user", "", "\n\n  \nx") == b""
    assert file_identity("salt", "", "", "x" * HEAD_CHARACTERS) != b"", "one long line is a head"


def test_tenants_users_and_names_are_apart() -> None:
    asked = [("salt", "", "a.py", ""), ("other", "", "a.py", ""), ("salt", "a", "a.py", ""), ("salt", "a", "b.py", "")]
    asked += [("salt", "", "", "a.py\n"), ("salt", "a.py", "", "\nx\n"), ("salt", "a", ".py", "a\n")]
    assert len({file_identity(*one) for one in asked}) == len(asked)


async def test_the_suffix_and_the_typed_line_do_not_move_a_request() -> None:
    async def file(prefix: str, suffix: str, path: str = "") -> bytes:
        asked = FillRequest(model="m", prefix=prefix, suffix=suffix, path=path)
        return (await prepare_fill(asked, "req_1", CALLER, "salt", target(None))).file

    assert await file("import os\nx", "\n") == await file("import os\nx = 1", "\n\ny = 2\n") != b""
    assert await file("x", "", path="a.py") == await file("y\n", "z", path="a.py") != b""
