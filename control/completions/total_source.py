"""Chooses the tables from which a period's totals are read: the smallest with the requested columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Date, Select, Subquery, func, literal_column, select, union_all

from control.completions.total_tables import (
    COUNTS,
    completion_days,
    completion_hours,
    detailed_completion_days,
    project_completion_days,
    project_completion_weeks,
)
from storage.calendar import midnight

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
SUMMED = (*COUNTS, "buckets", "counts")
BY_DAY = (
    (completion_days, frozenset({"language", "client", "model"})),
    (project_completion_days, frozenset({"project_id"})),
    (detailed_completion_days, frozenset({"language", "client", "model", "project_id"})),
)
"""The tables by day, the smallest first, with their group columns."""


def source(organization_id: UUID, begin: datetime, end: datetime, names: frozenset[str], *, by_day: bool) -> Subquery:
    """Rows to add up for an organization's completions that arrived in a period, with the columns `names` and
    `SUMMED`, and with `day` if requested. begin, end: whole hours (UTC). names: some of `language`, `client`, `model`
    and `project_id`.

    Whole weeks come from a table by week and whole days from one by day, the smallest that has the names; the rest at
    the period's edges comes from the hours.
    """
    parts = [_part(*found, organization_id, names, by_day=by_day) for found in _spans(begin, end, names, by_day=by_day)]
    return (union_all(*parts) if len(parts) > 1 else parts[0]).subquery("source")


def _spans(
    begin: datetime, end: datetime, names: frozenset[str], *, by_day: bool
) -> Iterator[tuple[Column[Any], date, date]]:
    """The tables' time columns, each with the begin and end of its rows, without gaps."""
    first, past = (begin + DAY - timedelta(microseconds=1)).date(), end.date()
    if first >= past:
        yield completion_hours.c.hour, begin, end
        return
    daily = next(table for table, known in BY_DAY if names <= known)
    monday = first + timedelta(days=-first.weekday() % 7)
    last_monday = past - timedelta(days=past.weekday())
    weekly = daily is project_completion_days and not by_day and monday < last_monday
    spans: list[tuple[Column[Any], date, date]] = [(completion_hours.c.hour, begin, midnight(first))]
    if weekly:
        spans += [
            (daily.c.day, first, monday),
            (project_completion_weeks.c.week, monday, last_monday),
            (daily.c.day, last_monday, past),
        ]
    else:
        spans.append((daily.c.day, first, past))
    spans.append((completion_hours.c.hour, midnight(past), end))
    yield from (each for each in spans if each[1] < each[2])


def _part(
    time: Column[Any], begin: date, end: date, organization_id: UUID, names: frozenset[str], *, by_day: bool
) -> Select[Any]:
    columns = time.table.c
    chosen: list[ColumnElement[Any]] = [columns[name] for name in (*sorted(names), *SUMMED)]
    if by_day:
        is_hour = time is completion_hours.c.hour
        day = func.timezone(literal_column("'UTC'"), time).cast(Date) if is_hour else time
        chosen.append(day.label("day"))
    return select(*chosen).where(columns.organization_id == organization_id, time >= begin, time < end)
