"""What of a document is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.lsp.gap import GRID_LINES, Gap, Selected, find_gap, keep_end, keep_start

TEXTS = st.text(alphabet="ab\n", max_size=300)


def gap(text: str, selected: Selected | None = None, *, invoked: bool = False) -> Gap:
    """The gap at `|`."""
    cursor = text.index("|")
    return find_gap(text.replace("|", ""), cursor, selected, invoked=invoked, prefix_chars=1_000, suffix_chars=1_000)


@pytest.mark.parametrize(
    ("text", "block", "block_when_invoked"),
    [
        ("def f():\n    |\n", True, True),
        ("def f():|\n", True, True),
        ("if (x) { |\n", True, True),
        ("|", True, True),
        ("x = |\n", False, True),
        ("x = |   \r\ny", False, True),
        ("f(|)\n", False, False),
        ("    |return\n", False, False),
    ],
)
def test_a_block_is_asked_for_where_the_line_is_free(text: str, block: bool, block_when_invoked: bool) -> None:
    assert gap(text).block == block
    assert gap(text, invoked=True).block == block_when_invoked


def test_both_sides_have_lf() -> None:
    assert gap("a\r\nb|c\r\nd") == Gap("a\nb", "c\nd", block=False)


def test_a_selected_item_counts_as_accepted() -> None:
    assert gap("os.pa|th2\n", Selected(3, 5, "path")) == Gap("os.path", "th2\n", block=False)


@given(TEXTS, st.integers(0, 100))
def test_the_end_is_kept_from_a_line_on(text: str, most: int) -> None:
    kept = keep_end(text, most)
    assert text.endswith(kept)
    assert len(kept) <= most or kept == text
    before = text[: len(text) - len(kept)]
    if "\n" in text[max(0, len(text) - most - 1) :]:
        assert before == "" or before.endswith("\n")


@given(TEXTS, st.integers(0, 100))
def test_the_start_is_kept_to_a_lines_end(text: str, most: int) -> None:
    kept = keep_start(text, most)
    assert text.startswith(kept)
    assert len(kept) <= most
    assert kept in (text, text[:most]) or kept.endswith("\n")


def test_the_head_stays_while_lines_are_added() -> None:
    lines = [f"{number:07}\n" for number in range(1_000)]
    heads = [keep_end("".join(lines[:count]), 1_600)[:7] for count in range(300, 300 + 2 * GRID_LINES)]
    assert len(set(heads)) <= 3
    assert all(int(head) % GRID_LINES == 0 for head in heads)
