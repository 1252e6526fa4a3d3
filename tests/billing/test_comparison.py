"""The comparison itself: on a ledger that was tampered with by one row or one token it must fail."""

from __future__ import annotations

import random

import msgspec
import pytest

from gateway.metering.journal.records import engine_request_id
from tests.billing.comparison import Counted, Row, compare
from tests.billing.doctored import MUTANTS, Mutant


def books(size: int = 50) -> tuple[list[Counted], list[Row]]:
    """Some attempts and their rows, two of which belong to one request, and a row that reached no engine."""
    counted, rows = [], []
    for number in range(size):
        request_id, attempt = (f"req_{number}", 0) if number else ("req_1", 1)
        counted.append(Counted(engine_request_id(request_id, attempt), 10 + number, number + 1))
        rows.append(Row(request_id, attempt, "r", 10 + number, number + 1, "exact", "complete", number > 0))
    rows.append(Row("req_nobody", 0, None, 0, 0, "exact", "not_placed", False))
    return counted, rows


def test_right_books_are_right() -> None:
    result = compare(*books())
    assert result.right
    assert (result.attempts, result.rows, result.error_tokens) == (50, 51, 0)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_one_wrong_row_is_found(mutant: Mutant) -> None:
    counted, rows = books()
    for seed in range(20):
        assert not compare(counted, mutant(list(rows), random.Random(seed))).right


def test_the_error_is_counted_in_tokens() -> None:
    counted, rows = books()
    assert compare(counted, rows[1:]).error_tokens == counted[0].prompt_tokens + counted[0].completion_tokens
    assert compare(counted, [msgspec.structs.replace(rows[0], completion_tokens=4), *rows[1:]]).error_tokens == 3
