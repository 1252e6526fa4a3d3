"""Computes the price of an attempt in SQL over rows of the ledger."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, FromClause, Numeric, case, func
from sqlalchemy.sql.expression import literal_column

from gateway.metering.pricing.price import PER_TOKENS, WHOLE


def cached_tokens(events: FromClause) -> ColumnElement[int]:
    """Cached tokens, but never more than prompt tokens."""
    return func.least(events.c.cached_tokens, events.c.prompt_tokens)


def written_tokens(events: FromClause) -> ColumnElement[int]:
    """Tokens written to a billed cache: at most the prompt tokens that were not cached."""
    return func.least(events.c.cache_write_tokens, events.c.prompt_tokens - cached_tokens(events))


def amount_micro(events: FromClause, price: FromClause, percent: ColumnElement[int]) -> ColumnElement[int]:
    """Exactly `Price.amount_micro`; 0 without a price. percent: the part of the price that it costs."""
    cached, written = cached_tokens(events), written_tokens(events)
    exact = (
        (events.c.prompt_tokens - cached - written).cast(Numeric) * price.c.input_micro
        + cached.cast(Numeric) * price.c.cached_input_micro
        + written.cast(Numeric) * price.c.cache_write_micro
        + events.c.completion_tokens.cast(Numeric) * price.c.output_micro
    )
    divisor = PER_TOKENS * WHOLE
    rounded = func.div(exact * percent + literal_column(str(divisor // 2)), literal_column(str(divisor)))
    return case((price.c.version.is_(None), literal_column("0")), else_=rounded.cast(BigInteger))
