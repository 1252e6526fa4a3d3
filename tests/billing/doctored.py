"""Ways to tamper with a ledger by one row: each must be noticed."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from tests.billing.comparison import Row

Mutant = Callable[[list[Row], random.Random], list[Row]]


def _of_an_engine(rows: list[Row], choose: random.Random) -> int:
    return choose.choice([number for number, row in enumerate(rows) if row.completion_tokens])


def dropped(rows: list[Row], choose: random.Random) -> list[Row]:
    del rows[_of_an_engine(rows, choose)]
    return rows


def doubled(rows: list[Row], choose: random.Random) -> list[Row]:
    return [*rows, rows[_of_an_engine(rows, choose)]]


def one_token_more(rows: list[Row], choose: random.Random) -> list[Row]:
    """A row has a token too many."""
    number = _of_an_engine(rows, choose)
    rows[number] = msgspec.structs.replace(rows[number], completion_tokens=rows[number].completion_tokens + 1)
    return rows


def a_token_less(rows: list[Row], choose: random.Random) -> list[Row]:
    """A row's prompt has a token too few."""
    number = _of_an_engine(rows, choose)
    rows[number] = msgspec.structs.replace(rows[number], prompt_tokens=rows[number].prompt_tokens - 1)
    return rows


def moved(rows: list[Row], choose: random.Random) -> list[Row]:
    """A token has gone from one row to another: the sum is right."""
    one, other = choose.sample([number for number, row in enumerate(rows) if row.completion_tokens], 2)
    rows[one] = msgspec.structs.replace(rows[one], completion_tokens=rows[one].completion_tokens + 1)
    rows[other] = msgspec.structs.replace(rows[other], completion_tokens=rows[other].completion_tokens - 1)
    return rows


def invented(rows: list[Row], choose: random.Random) -> list[Row]:
    """A row that no engine knows."""
    return [*rows, msgspec.structs.replace(rows[_of_an_engine(rows, choose)], request_id="req_of_nobody")]


def billed_again(rows: list[Row], choose: random.Random) -> list[Row]:
    """A second attempt of a request is billed, of no tokens at all."""
    row = choose.choice([row for row in rows if row.billed])
    return [*rows, msgspec.structs.replace(row, attempt=row.attempt + 5, prompt_tokens=0, completion_tokens=0)]


MUTANTS: tuple[Mutant, ...] = (dropped, doubled, one_token_more, a_token_less, moved, invented, billed_again)
