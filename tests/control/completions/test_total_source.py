"""A report reads the smallest tables that have what it asks for."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from control.completions.total_source import source

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY, WEEK, HOUR = timedelta(days=1), timedelta(weeks=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("begin", "end", "names", "by_day", "tables"),
    [
        (MONDAY, MONDAY + WEEK, set(), False, ["completion_days"]),
        (MONDAY, MONDAY + WEEK, {"language", "model"}, True, ["completion_days"]),
        (MONDAY, MONDAY + WEEK, {"project_id"}, False, ["project_completion_weeks"]),
        (MONDAY, MONDAY + WEEK, {"project_id"}, True, ["project_completion_days"]),
        (MONDAY, MONDAY + WEEK, {"project_id", "client"}, False, ["detailed_completion_days"]),
        (MONDAY + DAY, MONDAY + WEEK, {"project_id"}, False, ["project_completion_days"]),
        (
            MONDAY - DAY,
            MONDAY + 2 * WEEK + DAY,
            {"project_id"},
            False,
            ["project_completion_days", "project_completion_weeks", "project_completion_days"],
        ),
        (MONDAY - HOUR, MONDAY + DAY, set(), False, ["completion_hours", "completion_days"]),
        (MONDAY, MONDAY + DAY + HOUR, {"client"}, True, ["completion_days", "completion_hours"]),
        (MONDAY + HOUR, MONDAY + 2 * DAY - HOUR, set(), False, ["completion_hours"]),
    ],
)
def test_the_smallest_tables(begin: datetime, end: datetime, names: set[str], by_day: bool, tables: list[str]) -> None:
    found = source(UUID(int=1), begin, end, frozenset(names), by_day=by_day)
    assert re.findall(r"FROM gateway\.(\w+)", str(found.element)) == tables
    assert set(found.c.keys()) >= names | ({"day"} if by_day else set())
