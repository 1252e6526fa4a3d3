"""Totals of past hours for invoices, by day and price, and by month. The usage roll-up's transaction computes them.

Whole days and months are replaced, and never added to, whenever an hour is closed or a row reaches a closed hour. An
invoice reads the events after the last closed hour directly (`control/billing/invoice.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    Select,
    Subquery,
    bindparam,
    delete,
    func,
    insert,
    select,
    union_all,
)
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import first_at
from control.billing.events import DAY, IN_PARTITIONS, arrived_within
from gateway.metering.ledger.amounts import cached_tokens, written_tokens
from storage.rows import equal
from storage.tables.metering import (
    CHARGED,
    COUNTED,
    invoice_closings,
    invoice_days,
    invoice_months,
    usage_daily,
    usage_events,
    usage_retired_days,
)
from storage.worker_connection import Connection, run

LINE = ("organization_id", "project_id", "key_id", "model", "tier", "price_percent", "price_version")
"""Columns that identify one line of an invoice. A price_version of 0 means no price."""
SUMS = ("requests", *COUNTED, *CHARGED)
_E, _D, _M = usage_events.c, invoice_days.c, invoice_months.c
_DAY, _MONTH, _NEXT = (bindparam(name, type_=Date) for name in ("day", "month", "next"))


def lines_of_events(*leading: ColumnElement[Any]) -> Select[Any]:
    """Lines and sums of billed attempts, without further conditions. leading: additional group columns."""
    cached, written = cached_tokens(usage_events), written_tokens(usage_events)
    line = (*(_E[name] for name in LINE[:-1]), func.coalesce(_E.price_version, 0).label("price_version"))
    counted = (func.sum(_E[name]) for name in COUNTED)
    charged = (func.sum(part) for part in (_E.prompt_tokens - cached - written, cached, written))
    sums = (each.cast(BigInteger).label(name) for name, each in zip(SUMS[1:], (*counted, *charged), strict=True))
    return select(*leading, *line, func.count().label("requests"), *sums).where(_E.billed).group_by(*leading, *line)


def lines_by_day(organization_id: UUID | None, begin: datetime, end: datetime) -> Subquery:
    """Lines and sums of whole days (UTC): of events, and of totals for days that are past their retention.
    organization_id: None for all."""
    retired = select(usage_retired_days.c.day)
    of_events = lines_of_events(DAY.label("day")).where(
        equal(_E.organization_id, organization_id), *arrived_within(begin, end), DAY.not_in(retired)
    )
    totals = select(_D.day, *(_D[name] for name in (*LINE, *SUMS))).where(
        equal(_D.organization_id, organization_id), _D.day >= begin.date(), _D.day < end.date(), _D.day.in_(retired)
    )
    return union_all(of_events, totals).subquery("line")


def lines_of_days(*leading: ColumnElement[Any]) -> Select[Any]:
    """Lines and sums of closed days."""
    line = [_D[name] for name in LINE]
    sums = (func.sum(_D[name]).cast(BigInteger).label(name) for name in SUMS)
    return select(*leading, *line, *sums).group_by(*line)


FILL_DAY = insert(invoice_days).from_select(
    ["day", *LINE, *SUMS],
    lines_of_events(DAY.label("day")).where(IN_PARTITIONS, DAY == _DAY, _E.requested_at < bindparam("until")),
)
FILL_MONTH = insert(invoice_months).from_select(
    ["month", *LINE, *SUMS],
    lines_of_days(_MONTH.label("month")).where(_D.day >= _MONTH, _D.day < _NEXT),
)
CLOSED = select(func.max(invoice_closings.c.until))
CLOSABLE = select(
    func.date_trunc(literal_column("'hour'"), func.now(), literal_column("'UTC'")), CLOSED.scalar_subquery()
)
ALL_DAYS = select(usage_daily.c.day).distinct().where(usage_daily.c.day.not_in(select(usage_retired_days.c.day)))
"""Days with events that are kept: an amount of other days could not be computed again."""
DAYS = ALL_DAYS.where(usage_daily.c.day >= bindparam("since", type_=Date))


def close_hours(connection: Connection, touched: Iterable[datetime]) -> None:
    """Close past hours, and recompute closed ones that got rows since the last run. touched: hours in UTC with new
    rows. Their `gateway.usage_daily` must be up to date. Raises psycopg.Error."""
    row = run(connection, CLOSABLE).fetchone()
    assert row is not None
    closed = None if row[1] is None else row[1].astimezone(UTC)
    until = max(row[0].astimezone(UTC), closed or datetime.min.replace(tzinfo=UTC))  # the clock may be set back
    days = {hour.date() for hour in touched if closed is not None and hour < closed}
    if closed is None:
        days |= {day for (day,) in run(connection, ALL_DAYS)}
    elif closed < until:
        days |= {day for (day,) in run(connection, DAYS, {"since": closed.date()})}
    for day in sorted(days):
        _redo_day(connection, day, until)
    for month in sorted({day.replace(day=1) for day in days}):
        run(connection, delete(invoice_months).where(_M.month == _MONTH), {"month": month})
        run(connection, FILL_MONTH, {"month": month, "next": next_month(month)})
    if closed is None or closed < until:
        run(connection, delete(invoice_closings))
        run(connection, insert(invoice_closings).values(until=bindparam("until")), {"until": until})


def next_month(month: date) -> date:
    """The first day of the next month."""
    return (month + timedelta(days=31)).replace(day=1)


def _redo_day(connection: Connection, day: date, until: datetime) -> None:
    begin = datetime.combine(day, time(), UTC).timestamp()
    run(connection, delete(invoice_days).where(_D.day == _DAY), {"day": day})
    run(connection, FILL_DAY, {"day": day, "until": until, "first": first_at(begin), "last": first_at(begin + 86_400)})
