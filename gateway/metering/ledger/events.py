"""What statements about the ledger's events share, in SQLAlchemy Core: partitions, days, what an attempt costs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Date, FromClause, Numeric, Text, and_, bindparam, case, func, or_
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import FIRST_DATED, PAST_DATED
from gateway.metering.pricing.price import PER_TOKENS
from storage.tables.metering import usage_events

_EVENT = usage_events.c
# Constants stand in the text: of a parameter, PostgreSQL does not know that it is the same in SELECT and in GROUP BY.
_UTC: ColumnElement[str] = literal_column("'UTC'")
HOUR = func.date_trunc(literal_column("'hour'"), _EVENT.requested_at, _UTC)
"""In which the request arrived."""


def in_partitions(first: ColumnElement[str], last: ColumnElement[str]) -> ColumnElement[bool]:
    """Of the days whose ids lie from `first` up to `last`, and of the two partitions that hold ids without a time."""
    event_id = _EVENT.request_id
    undated = (event_id < literal_column(f"'{FIRST_DATED}'"), event_id >= literal_column(f"'{PAST_DATED}'"))
    return or_(and_(event_id >= first, event_id < last), *undated)


IN_PARTITIONS = in_partitions(bindparam("first", type_=Text), bindparam("last", type_=Text))
"""The same, for parameters of these names."""


def utc_day(moment: ColumnElement[Any]) -> ColumnElement[Any]:
    """The day of a moment."""
    return func.timezone(_UTC, moment).cast(Date)


DAY = utc_day(_EVENT.requested_at)
"""On which the request arrived."""


def cached_tokens(events: FromClause) -> ColumnElement[int]:
    """Never more than there were in the prompt."""
    return func.least(events.c.cached_tokens, events.c.prompt_tokens)


def written_tokens(events: FromClause) -> ColumnElement[int]:
    """To a cache that is charged for: never more than is left beside the cached ones."""
    return func.least(events.c.cache_write_tokens, events.c.prompt_tokens - cached_tokens(events))


def amount_micro(events: FromClause, price: FromClause) -> ColumnElement[int]:
    """`Price.amount_micro`, to the integer; 0 without a price."""
    cached, written = cached_tokens(events), written_tokens(events)
    exact = (
        (events.c.prompt_tokens - cached - written).cast(Numeric) * price.c.input_micro
        + cached.cast(Numeric) * price.c.cached_input_micro
        + written.cast(Numeric) * price.c.cache_write_micro
        + events.c.completion_tokens.cast(Numeric) * price.c.output_micro
    )
    rounded = func.div(exact + literal_column(str(PER_TOKENS // 2)), literal_column(str(PER_TOKENS)))
    return case((price.c.version.is_(None), literal_column("0")), else_=rounded.cast(BigInteger))
