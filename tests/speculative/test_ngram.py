"""Drafts from what was said before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speculative.ngram import NgramDrafts


def naive(tokens: list[int], count: int, least: int, most: int) -> list[int]:
    """Search from the end for each size; read on in the guess where the text ends."""
    for size in range(most, least - 1, -1):
        for at in range(len(tokens) - 1, size - 1, -1):
            if len(tokens) >= size and tokens[at - size : at] == tokens[-size:]:
                text = list(tokens)
                for step in range(count):
                    text.append(text[at + step])
                return text[len(tokens) :]
    return []


def test_what_followed_before_is_guessed() -> None:
    assert NgramDrafts(2, 3).propose([1, 2, 3, 4, 9, 1, 2], 3) == [3, 4, 9]


def test_nothing_is_guessed_without_a_match() -> None:
    assert NgramDrafts(2, 3).propose([1, 2, 3, 2], 3) == []
    assert NgramDrafts(2, 3).propose([1], 3) == []


def test_a_loop_is_guessed_to_go_on() -> None:
    assert NgramDrafts(2, 3).propose([7, 8, 7, 8, 7, 8], 5) == [7, 8, 7, 8, 7]


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2))
def test_the_index_finds_what_a_search_finds_however_the_text_grew(
    tokens: list[int], count: int, least: int, more: int
) -> None:
    index = NgramDrafts(least, least + more)
    for stop in (len(tokens) // 3, len(tokens) // 2, len(tokens)):
        assert index.propose(tokens[:stop], count) == naive(tokens[:stop], count, least, least + more)
