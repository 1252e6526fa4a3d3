"""What of a document is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.lsp.gap import STEPS, Gap, Selected, bounded_end, find_gap

TEXTS = st.text(alphabet="ab\n", max_size=300)


def gap(text: str, selected: Selected | None = None, suffix_chars: int = 1_000) -> Gap:
    """The gap at `|`."""
    cursor = text.index("|")
    return find_gap(text.replace("|", ""), cursor, selected, prefix_chars=1_000, suffix_chars=suffix_chars)


def test_both_sides_have_lf() -> None:
    assert gap("a\r\nb|c\r\nd") == Gap("a\nb", "c\nd")


def test_a_selected_item_counts_as_accepted() -> None:
    assert gap("os.pa|th2\n", Selected(3, 5, "path")) == Gap("os.path", "th2\n")


@pytest.mark.parametrize(("most", "kept"), [(0, ""), (2, "c\n"), (3, "c\nd"), (9, "c\nd")])
def test_the_start_is_kept(most: int, kept: str) -> None:
    assert gap("a\nb|c\r\nd", suffix_chars=most).suffix == kept


@given(TEXTS, st.integers(1, 100))
def test_the_end_is_kept_from_a_line_on(text: str, most: int) -> None:
    kept = bounded_end(text, most)
    assert text.endswith(kept)
    assert len(kept) <= most
    assert bool(kept) == bool(text)
    before = text[: len(text) - len(kept)]
    if "\n" in kept[:-1]:
        assert before == "" or before.endswith("\n") or "\n" not in text[len(before) - 1 : -1]


def test_the_beginning_stays_while_a_part_of_the_bound_is_typed() -> None:
    lines = [f"{number:07}\n" for number in range(1_000)]
    texts = ["".join(lines[:count]) for count in range(300, 500)]
    beginnings = {text.index(bounded_end(text, 1_600)) for text in texts}
    assert len(beginnings) <= (len(texts[-1]) - len(texts[0])) // (1_600 // STEPS) + 2
