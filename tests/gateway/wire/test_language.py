"""Whatever a client calls its language, only a name from a fixed list is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.language import EXTENSIONS, NAMES, OTHER, OTHER_NAMES, known_language, language_of_path


@given(st.text(max_size=200) | st.sampled_from(sorted({*NAMES, *OTHER_NAMES})))
def test_nothing_but_a_known_name_is_kept(told: str) -> None:
    kept = known_language(told)
    assert kept in NAMES or kept == (OTHER if told else None)


@pytest.mark.parametrize(
    ("told", "kept"),
    [("python", "python"), ("Python", "python"), ("C++", "cpp"), ("javascript-react", "javascriptreact"),
     ("golang", "go"), ("my secret", OTHER), ("", None)],
)  # fmt: skip
def test_names(told: str, kept: str | None) -> None:
    assert known_language(told) == kept


def test_other_names_lead_to_known_ones() -> None:
    assert {*OTHER_NAMES.values(), *EXTENSIONS.values()} <= NAMES


@pytest.mark.parametrize(
    ("path", "language"),
    [("src/a.py", "python"), ("a.b/C.TSX", "typescriptreact"), ("C:\\x\\y.rs", "rust"), ("Makefile", ""), (".py", ""),
     ("", ""), ("a.secret", "")],
)  # fmt: skip
def test_paths(path: str, language: str) -> None:
    assert language_of_path(path) == language
