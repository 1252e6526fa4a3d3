"""Dates, times and identifiers made alike; words left as they are; and no text that takes long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.prefixes.masks import _DATES, _VALUES, MASK, MASKED_CHARACTERS, undated, unvalued

DATES = [
    "2026-11-22", "2026/11/22", "2026-11-22T10:31:05Z", "2026-11-22 10:31:05.123+02:00", "22.11.2026", "11/22/2026",
    "10:31", "4:05 pm", "10:31 UTC", "November 22, 2026", "Nov 22", "22 November 2026", "22nd of November 2026",
    "Sunday, November 22, 2026", "Sunday", "Sun, 22 Nov 2026", "1795341600", "1795341600123",
]  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_a_date_is_masked_whole(date: str) -> None:
    assert undated(f"Today is {date}; be brief.") == "Today is #; be brief."


@pytest.mark.parametrize(
    "text", ["May I help?", "a second of 12", "You march on.", "version 3.11", "item 42", "decide"]
)
def test_what_is_no_date_stays(text: str) -> None:
    assert undated(text) == text


@pytest.mark.parametrize(
    "value", ["42", "user-17", "6f9619ff-8b86-d011-b42d-00c04fc964ff", "v1", "0xdeadbeef", "a1b2c3"]
)
def test_whatever_holds_a_digit_is_a_value(value: str) -> None:
    assert unvalued(f"Session {value} of Anna-Lena.") == "Session # of Anna-Lena."


def test_the_middle_of_a_long_text_is_compared_as_it_is() -> None:
    filler = "word " * MASKED_CHARACTERS
    text = f"2026-11-22 {filler}2026-11-23 {filler}2026-11-24"
    assert undated(text) == f"# {filler}2026-11-23 {filler}#"


@given(st.text(max_size=300))
def test_any_text_can_be_masked_and_keeps_what_holds_no_digit(text: str) -> None:
    once = unvalued(undated(text))
    assert not any(character in "0123456789" for character in once)


@pytest.mark.parametrize("piece", ["a", "-", "a-", "1", "1-", ":1", "mon ", "jan ", "12:", "1st ", "\n", "é"])
def test_no_text_takes_time_beyond_its_length(piece: str) -> None:
    """A pattern that tries again from every character would take hours for these: the test would hang."""
    text = (piece * 500_000)[:500_000]
    for pattern in (_DATES, _VALUES):
        pattern.sub(MASK, text)
