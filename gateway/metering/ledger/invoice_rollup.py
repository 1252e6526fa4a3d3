"""What invoices add up, kept for days that are over: by price, and by month. Part of the usage's roll-up, in its
transaction.

Whole days and months are replaced, never added to. A day is closed at its end (UTC) and done anew whenever a row
reaches it later; an invoice takes what is behind the last closed day from the events themselves (`pricing/invoice.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Date, Select, bindparam, delete, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from gateway.metering.journal.request_id import first_at
from gateway.metering.ledger.events import DAY, IN_PARTITIONS, cached_tokens, utc_day, written_tokens
from gateway.metering.ledger.worker_connection import Connection, run
from gateway.metering.tables import (
    CHARGED,
    COUNTED,
    invoice_closed_days,
    invoice_days,
    invoice_months,
    usage_daily,
    usage_events,
)

LINE = ("organization_id", "project_id", "key_id", "model", "tier", "price_version")
"""What one line of an invoice is about. A price_version of 0: there was no price."""
SUMS = ("requests", *COUNTED, *CHARGED)
_E, _D, _M = usage_events.c, invoice_days.c, invoice_months.c
_DAY, _MONTH, _NEXT = (bindparam(name, type_=Date) for name in ("day", "month", "next"))


def lines_of_events(*leading: ColumnElement[Any]) -> Select[Any]:
    """Lines and sums of billed attempts, open for conditions. leading: told apart too."""
    cached, written = cached_tokens(usage_events), written_tokens(usage_events)
    line = (*(_E[name] for name in LINE[:-1]), func.coalesce(_E.price_version, 0).label("price_version"))
    counted = (func.sum(_E[name]) for name in COUNTED)
    charged = (func.sum(part) for part in (_E.prompt_tokens - cached - written, cached, written))
    sums = (each.cast(BigInteger).label(name) for name, each in zip(SUMS[1:], (*counted, *charged), strict=True))
    return select(*leading, *line, func.count().label("requests"), *sums).where(_E.billed).group_by(*leading, *line)


def lines_of_days(*leading: ColumnElement[Any]) -> Select[Any]:
    """The same of days that are closed."""
    line = [_D[name] for name in LINE]
    sums = (func.sum(_D[name]).cast(BigInteger).label(name) for name in SUMS)
    return select(*leading, *line, *sums).group_by(*line)


FILL_DAY = insert(invoice_days).from_select(
    ["day", *LINE, *SUMS], lines_of_events(DAY.label("day")).where(IN_PARTITIONS, DAY == _DAY)
)
FILL_MONTH = insert(invoice_months).from_select(
    ["month", *LINE, *SUMS],
    lines_of_days(_MONTH.label("month")).where(_D.day >= _MONTH, _D.day < _NEXT),
)
TODAY = select(utc_day(func.now()), func.max(invoice_closed_days.c.day))
UNCLOSED = select(usage_daily.c.day).distinct().where(usage_daily.c.day < bindparam("today", type_=Date))
SINCE = UNCLOSED.where(usage_daily.c.day > bindparam("closed", type_=Date))
CLOSE = upsert(invoice_closed_days).values(day=_DAY).on_conflict_do_nothing()


def close_days(connection: Connection, touched: Iterable[date]) -> None:
    """Close the days that are over, and do closed ones anew that rows were added to since the last run. Their
    `gateway.usage_daily` must be up to date. Raises psycopg.Error."""
    row = run(connection, TODAY).fetchone()
    assert row is not None
    today, closed = row
    new = (
        run(connection, UNCLOSED, {"today": today})
        if closed is None
        else run(connection, SINCE, {"today": today, "closed": closed})
    )
    days = {day for (day,) in new} | {day for day in touched if day < today}
    for day in sorted(days):
        _redo_day(connection, day)
    for month in sorted({day.replace(day=1) for day in days}):
        run(connection, delete(invoice_months).where(_M.month == _MONTH), {"month": month})
        run(connection, FILL_MONTH, {"month": month, "next": next_month(month)})
    run(connection, CLOSE, {"day": today - timedelta(days=1)})


def next_month(month: date) -> date:
    """The first day of the month behind."""
    return (month + timedelta(days=31)).replace(day=1)


def _redo_day(connection: Connection, day: date) -> None:
    begin = datetime.combine(day, time(), UTC).timestamp()
    run(connection, delete(invoice_days).where(_D.day == _DAY), {"day": day})
    run(connection, FILL_DAY, {"day": day, "first": first_at(begin), "last": first_at(begin + 86_400)})
