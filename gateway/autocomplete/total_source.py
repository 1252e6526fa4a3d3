"""Where totals of a period are read: in the smallest table that tells apart what is asked for. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Date, Select, Subquery, func, literal_column, select, union_all

from gateway.autocomplete.total_tables import COUNTS, completion_days, completion_hours, project_completion_days

DAY = timedelta(days=1)
BY_DAY = (
    (completion_days, frozenset({"language", "client", "model"})),
    (project_completion_days, frozenset({"project_id"})),
)
"""The tables by day, the smallest first, and what they tell apart."""
SUMMED = (*COUNTS, "buckets", "counts")


def source(organization_id: UUID, begin: datetime, end: datetime, names: frozenset[str]) -> Subquery:
    """Rows to be added up, of an organization's completions that arrived in a period, with the columns `day`, `names`
    and `SUMMED`.

    begin, end: whole hours (UTC). names: of `language`, `client`, `model` and `project_id`. Whole days come from a
    table by day where one has the names, and what is left at the period's edges from the hours.
    """
    table = next((table for table, known in BY_DAY if names <= known), None)
    first, past = _midnight(begin + DAY - timedelta(microseconds=1)), _midnight(end)
    if table is None or first >= past:
        return _hours(organization_id, begin, end, names).subquery("source")
    columns = table.c
    days = select(columns.day, *(columns[name] for name in (*sorted(names), *SUMMED))).where(
        columns.organization_id == organization_id, columns.day >= first.date(), columns.day < past.date()
    )
    edges = [(since, until) for since, until in ((begin, first), (past, end)) if since < until]
    parts = (days, *(_hours(organization_id, since, until, names) for since, until in edges))
    return (union_all(*parts) if edges else days).subquery("source")


def _hours(organization_id: UUID, begin: datetime, end: datetime, names: frozenset[str]) -> Select[Any]:
    columns = completion_hours.c
    day: ColumnElement[Any] = func.timezone(literal_column("'UTC'"), columns.hour).cast(Date)
    return select(day.label("day"), *(columns[name] for name in (*sorted(names), *SUMMED))).where(
        columns.organization_id == organization_id, columns.hour >= begin, columns.hour < end
    )


def _midnight(moment: datetime) -> datetime:
    """At or before it."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
