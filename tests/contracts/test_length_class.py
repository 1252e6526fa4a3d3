"""The classes' bounds, which reports, metrics and promises share."""

from __future__ import annotations

import pytest

from contracts.length_class import length_class


@pytest.mark.parametrize(
    ("prompt_tokens", "expected"),
    [(0, "short"), (4_095, "short"), (4_096, "medium"), (16_383, "medium"), (16_384, "long"), (200_000, "long")],
)
def test_a_bound_belongs_to_the_longer_class(prompt_tokens: int, expected: str) -> None:
    assert length_class(prompt_tokens) == expected
