"""Outcomes and latencies of an organization's completions in editors.

They are sums of totals by hour, day and week, which the worker brings up to date every minute
(`worker.completions.roll_up_every_s`). Percentiles are those of histograms.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Double,
    FromClause,
    Select,
    SmallInteger,
    Subquery,
    and_,
    func,
    literal_column,
    null,
    select,
    true,
)

from contracts.errors import InvalidField
from control.api.call import AdminCall
from control.api.moments import period
from control.api.pages import page_of
from control.api.schemas import LedgerMoment, ModelName, Name, Page, PageQuery
from control.completions.rollup import HOUR
from control.completions.total_source import source
from control.completions.total_tables import COUNTS
from storage.calendar import hour_of
from storage.latency_histogram import WITHIN, middle_sql
from storage.rows import columns_of, equal

MAX = timedelta(days=92)
LAST_DAYS = timedelta(days=7)
MICROSECOND = timedelta(microseconds=1)
PERCENTILES = {"latency_p50_ms": 0.5, "latency_p95_ms": 0.95}


class AutocompleteGroup(StrEnum):
    """Columns that completions are grouped by."""

    DAY = "day"
    LANGUAGE = "language"
    CLIENT = "client"
    MODEL = "model"
    PROJECT = "project"


class AutocompleteTotals(Struct, frozen=True, kw_only=True):
    """Completions by models of the autocomplete tier. Fields that they are not grouped by are null.

    A showing is one choice of a completion in one view of an editor. It counts as accepted if any part of it was
    accepted, and as dismissed if it was rejected with no part accepted.
    """

    day: date | None
    """Day of the requests' arrival (UTC)."""
    language: str | None
    """The client's name for the language; `unknown` without one, `other` for an unknown name."""
    client: str | None
    """The client's family, by the User-Agent."""
    model: str | None
    project_id: UUID | None
    completions: int
    """Completions that were answered in full, with text."""
    empty: int
    """Completions that were answered in full without text, including cache warm-ups."""
    abandoned: int
    """Completions whose client left before the end, as editors do at the next keystroke."""
    superseded: int
    """Completions that ended, with or without text, because the user typed on while the client stayed connected."""
    shown: int
    """Showings for which an editor reported an outcome."""
    accepted: int
    dismissed: int
    acceptance_rate: float | None
    """accepted / shown; null if nothing was shown."""
    characters_offered: int
    """Characters in the first choice of each completion whose characters the gateway counted."""
    characters_kept: int
    """Accepted characters, as counted by editors. Without a count, a first choice that was accepted in full counts
    whole. Later edits are unknown."""
    latency_p50_ms: float | None
    """The time from the request's arrival to the response's last byte; null without completions. The value is the
    middle of a histogram's bucket, so its error is at most `percentiles_within`."""
    latency_p95_ms: float | None
    percentiles_within: float
    """Largest relative error of a percentile."""


class AutocompleteQuery(PageQuery, frozen=True, kw_only=True):
    """Filters of completions. start, end: when requests arrived, rounded down and up to whole hours. The default is the
    last seven days, the maximum 92 days. group_by may be repeated."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    project_id: UUID | None = None
    model: ModelName | None = None
    language: Name | None = None
    client: Name | None = None
    group_by: list[AutocompleteGroup] = field(default_factory=list)

    def period(self) -> tuple[datetime, datetime]:
        """The period in whole hours, in UTC. Raises InvalidField."""
        begin, end = period(self.start, self.end, LAST_DAYS)
        if end - begin > MAX:
            raise InvalidField(
                "Invalid value for 'start': at most 92 days are added up at once. Choose a shorter period.",
                param="start",
            )
        return hour_of(begin), hour_of(end + HOUR - MICROSECOND)


async def get_autocomplete(
    call: AdminCall, organization_id: UUID, query: AutocompleteQuery
) -> Page[AutocompleteTotals]:
    """Get acceptance, kept characters and latency of an organization's completions.

    The newest day comes first, and within a day the group with the most completions. `start` is rounded down and `end`
    up to a whole hour. Completions, and editors' reports about them, are in these totals within a minute
    (`worker.completions.roll_up_every_s`).
    """
    await call.require_organization(organization_id)
    begin, end = query.period()
    if not query.group_by and query.cursor is not None:
        raise InvalidField("Invalid value for 'cursor': a single total has no pages. Leave it out.", param="cursor")
    filters = {
        name: value
        for name in ("project_id", "model", "language", "client")
        if (value := getattr(query, name)) is not None
    }
    keys = [_column_of(group) for group in AutocompleteGroup if group in query.group_by]
    parts = source(organization_id, begin, end, frozenset({*keys, *filters} - {"day"}), by_day="day" in keys)
    chosen = and_(true(), *(equal(parts.c[name], value) for name, value in filters.items()))
    totals = _summed(parts, chosen, keys)
    most_first = [] if keys == ["day"] else ["completions"]
    days, others = [name for name in keys if name == "day"], [name for name in keys if name != "day"]
    return await page_of(
        call.connection,
        AutocompleteTotals,
        select(totals),
        query,
        *(totals.c[name] for name in (*days, *most_first, *others)),
        completed=lambda page: _with_latencies(page, parts, chosen, keys),
    )


def _column_of(group: AutocompleteGroup) -> str:
    return "project_id" if group is AutocompleteGroup.PROJECT else group.value


def _summed(parts: Subquery, chosen: ColumnElement[bool], keys: list[str]) -> Subquery:
    """One row for each group, with its counts."""
    groups = [parts.c[name] for name in keys]
    sums = (func.coalesce(func.sum(parts.c[name]), literal_column("0")).cast(BigInteger).label(name) for name in COUNTS)
    return select(*groups, *sums).where(chosen).group_by(*groups).subquery("totals")


def _with_latencies(page: CTE, parts: Subquery, chosen: ColumnElement[bool], keys: list[str]) -> Select[Any]:
    """The page's groups with percentiles; only these groups' histograms are added up."""
    groups = [parts.c[name] for name in keys]
    # Both unnest in step in the list of columns: a lateral join stores each row's histogram first, which is slower.
    histogram = (
        select(
            *groups,
            func.unnest(parts.c.buckets, type_=SmallInteger).label("bucket"),
            func.unnest(parts.c.counts, type_=BigInteger).label("each"),
        )
        .select_from(parts.join(page, _same(parts, page, keys)))
        .where(chosen)
        .subquery("histogram")
    )
    groups = [histogram.c[name] for name in keys]
    bucketed = (
        select(*groups, histogram.c.bucket, func.sum(histogram.c.each).label("of_bucket"))
        .group_by(*groups, histogram.c.bucket)
        .subquery("bucketed")
    )
    groups, of_bucket = [bucketed.c[name] for name in keys], func.sum(bucketed.c.of_bucket)
    ranked = select(
        *groups,
        bucketed.c.bucket,
        of_bucket.over(partition_by=groups or None, order_by=bucketed.c.bucket).label("upto"),
        of_bucket.over(partition_by=groups or None).label("whole"),
    ).subquery("ranked")
    groups = [ranked.c[name] for name in keys]
    found = (
        select(
            *groups,
            *(
                func.min(ranked.c.bucket)
                .filter(ranked.c.upto >= literal_column(str(part)) * ranked.c.whole)
                .label(name)
                for name, part in PERCENTILES.items()
            ),
        )
        .group_by(*groups)
        .subquery("found")
    )
    shown, accepted = page.c.shown, page.c.accepted
    absent = {name: null() for name in map(_column_of, AutocompleteGroup) if name not in keys}
    computed: dict[str, ColumnElement[Any]] = {
        **absent,
        "acceptance_rate": accepted.cast(Double) / func.nullif(shown.cast(Double), literal_column("0")),
        **{name: literal_column(middle_sql(f"found.{name}"), Double) for name in PERCENTILES},
        "percentiles_within": literal_column(str(WITHIN)).cast(Double),
    }
    return select(*columns_of(AutocompleteTotals, page, **computed)).select_from(
        page.outerjoin(found, _same(page, found, keys))
    )


def _same(one: FromClause, other: FromClause, keys: list[str]) -> ColumnElement[bool]:
    return and_(true(), *(one.c[name] == other.c[name] for name in keys))
