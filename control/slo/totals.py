"""Reads a period's counts from the roll-up with the fewest rows: whole hours, and minutes where an hour is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, Column, DateTime, Select, Subquery, Table, all_, literal, select, union_all

from control.slo.serving_tables import serving_hours, serving_minutes
from control.slo.tables import COUNTS, slo_hours, slo_minutes
from storage.calendar import hour_of

HOUR = timedelta(hours=1)
LEVELS = ((serving_minutes, serving_hours), (slo_minutes, slo_hours))
"""Tables by minute and by hour, the fewest rows first. Only minutes separate projects: most projects have requests in
few minutes of an hour, and would have nearly as many rows by hour."""
_MOMENTS = ARRAY(DateTime(timezone=True))


def totals(edges: Iterable[datetime], dimensions: Collection[str], *, by_minute: bool = False) -> Subquery:
    """Rows of `at`, the group columns, and `COUNTS`, of the minutes that begin between the first and last edge.

    A row covers a minute, or an hour that no edge cuts, so that all of it is on the same side of each. dimensions:
    columns of `slo_minutes` for grouping or filtering. by_minute: minutes only.
    """
    moments = sorted(edge.astimezone(UTC) for edge in edges)
    begin, end = moments[0], moments[-1]
    minutes, hours = next(
        ((each, by_hour) for each, by_hour in LEVELS if _tells(by_hour, dimensions)), (slo_minutes, None)
    )
    if by_minute or hours is None:
        return _rows(minutes, dimensions, begin, end).subquery("totals")
    begins = {moment: hour_of(moment) for moment in moments}
    cut = sorted({begun for moment, begun in begins.items() if begun != moment})
    whole = _rows(hours, dimensions, begin, end).where(_time_of(hours) != all_(literal(cut, _MOMENTS)))
    parts = (_rows(minutes, dimensions, max(begun, begin), min(begun + HOUR, end)) for begun in cut)
    return union_all(whole, *parts).subquery("totals")


def _tells(table: Table, dimensions: Collection[str]) -> bool:
    return set(dimensions) <= set(table.c.keys())


def _time_of(table: Table) -> Column[datetime]:
    return table.c.minute if table is slo_minutes else table.c.at


def _rows(table: Table, dimensions: Collection[str], begin: datetime, end: datetime) -> Select[Any]:
    names, at = (*sorted(dimensions), *COUNTS), _time_of(table)
    return select(at.label("at"), *(table.c[name] for name in names)).where(at >= begin, at < end)
