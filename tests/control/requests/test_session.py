"""Why a turn's prompt was computed once more: by what it was, what its engine had and where it ran."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.dated_request_id import mint
from control.requests.session import turns_of

NINE_S = 1_795_770_000.0


def row(at_s: float, **fields: Any) -> dict[str, Any]:
    """A trace with its prefix sample; whole turns of a second."""
    return {
        "request_id": mint(NINE_S + at_s),
        "recorded_at": datetime.fromtimestamp(NINE_S + at_s + 1, UTC),
        "session_agent": None,
        "session_parent": None,
        "decision": "served",
        "status": 200,
        "error_code": None,
        "endpoint": "chat",
        "model": "m",
        "replica_id": "e-0",
        "prompt_tokens": 4_000,
        "cached_tokens": 3_968,
        "reusable_tokens": 3_968,
        "cause": "continued",
        "completion_tokens": 10,
        "amount_micro": 5,
        "ttft_ms": 80.0,
        "total_ms": 1_000.0,
        **fields,
    }


@pytest.mark.parametrize(
    ("second", "placed", "expected"),
    [
        ({}, True, (0, None)),
        ({"cached_tokens": 0}, True, (4_000, "not_cached")),
        ({"cached_tokens": 0, "replica_id": "e-1"}, True, (4_000, "moved")),
        ({"cached_tokens": 0, "replica_id": "e-1"}, False, (4_000, "not_cached")),
        ({"cached_tokens": 0, "reusable_tokens": 64, "cause": "timestamp"}, True, (4_000, "timestamp")),
        ({"cached_tokens": 0, "reusable_tokens": None, "cause": None}, True, (4_000, None)),
        ({"prompt_tokens": 500, "cached_tokens": 448}, True, (0, None)),
        ({"cached_tokens": None}, True, (None, None)),
        ({"session_agent": "sub", "cached_tokens": 0}, True, (0, None)),
        ({"model": "other", "cached_tokens": 0}, True, (0, None)),
    ],
)
def test_lost_tokens_have_a_cause(
    second: dict[str, Any], placed: bool, expected: tuple[int | None, str | None]
) -> None:
    turn = turns_of([row(0), row(5, **second)], placed=placed)[1]
    assert (turn.lost_tokens, turn.cause) == expected


def test_gaps_are_between_the_turns_of_one_agent_and_refusals_count_as_turns() -> None:
    refused = {"status": 429, "decision": "refused", "prompt_tokens": None, "cached_tokens": None}
    rows = [row(0), row(0.5, session_agent="sub"), row(3, **refused), row(7, cached_tokens=0)]
    turns = turns_of(rows, placed=True)
    assert [turn.gap_ms for turn in turns] == [None, None, 2_000.0, 3_000.0]
    assert turns[3].lost_tokens == 4_000, "compared with the newest turn that an engine computed"
