"""SQL expressions that statements about the ledger's events share: partitions, hours and days."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Date, Text, and_, bindparam, func, literal, or_
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import FIRST_DATED, PAST_DATED, first_at
from storage.tables.metering import usage_events

_EVENT = usage_events.c
# Constants are literals: PostgreSQL does not know that a parameter has the same value in SELECT and in GROUP BY.
_UTC: ColumnElement[str] = literal_column("'UTC'")
HOUR = func.date_trunc(literal_column("'hour'"), _EVENT.requested_at, _UTC)
"""The hour of the request's arrival."""


def in_partitions(first: ColumnElement[str], last: ColumnElement[str]) -> ColumnElement[bool]:
    """Condition for ids from `first` up to, not including, `last`, and for the two partitions of ids without a time."""
    event_id = _EVENT.request_id
    undated = (event_id < literal_column(f"'{FIRST_DATED}'"), event_id >= literal_column(f"'{PAST_DATED}'"))
    return or_(and_(event_id >= first, event_id < last), *undated)


IN_PARTITIONS = in_partitions(bindparam("first", type_=Text), bindparam("last", type_=Text))
"""`in_partitions` of the parameters `first` and `last`."""


def arrived_within(begin: datetime, end: datetime) -> tuple[ColumnElement[bool], ...]:
    """Conditions for requests that arrived from `begin` up to, not including, `end`, in their partitions."""
    ids = in_partitions(literal(first_at(begin.timestamp())), literal(first_at(end.timestamp())))
    return ids, _EVENT.requested_at >= begin, _EVENT.requested_at < end


def utc_day(moment: ColumnElement[Any]) -> ColumnElement[Any]:
    """The day of a time, in UTC."""
    return func.timezone(_UTC, moment).cast(Date)


DAY = utc_day(_EVENT.requested_at)
"""The day of the request's arrival."""
