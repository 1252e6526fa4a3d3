"""Computes what an organization owes for a month: from the ledger's events, or, to the same micro-unit, from the totals
of closed hours (`invoice_rollup.py`) and later events.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import BigInteger, Numeric, Select, func, null, select, union_all
from sqlalchemy.sql.expression import literal_column

from control.billing.events import arrived_within
from control.billing.invoice_rollup import CLOSED, LINE, SUMS, lines_by_day, lines_of_events
from gateway.metering.pricing.price import PER_TOKENS, WHOLE
from storage.rows import columns_of, fetch, fetchval
from storage.tables.core import api_keys, projects
from storage.tables.metering import invoice_months, prices, usage_events

_OF_EXACT = 1 / Decimal(PER_TOKENS * WHOLE)
# Where the comma is the decimal mark, spreadsheets begin a cell at a semicolon; full-width signs begin formulas too.
_FORMULA = re.compile("(^|[;\t\r\n])( *)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r])")


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One price of one key. Rates are micro-units per million tokens; null without a price. amount_micro: the sum of
    the attempts' amounts, each of which is rounded to the nearest micro-unit. unrounded_micro: the tokens times the
    rates, without rounding. rounding_micro: the difference, at most half a micro-unit per request. price_percent: the
    percentage of the rates that these requests cost; less than 100 in the class `offline`."""

    project_id: UUID
    project: str | None
    """Null if the project no longer exists."""
    key_id: UUID
    key: str | None
    model: str
    tier: str
    price_version: int | None
    price_percent: int
    input_micro: int | None
    cached_input_micro: int | None
    cache_write_micro: int | None
    output_micro: int | None
    requests: int
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    amount_micro: int
    unrounded_micro: Decimal
    rounding_micro: Decimal
    currency: str


def _of_events(organization_id: UUID, begin: datetime, end: datetime) -> Select[Any]:
    return lines_of_events().where(usage_events.c.organization_id == organization_id, *arrived_within(begin, end))


def _of_closed_hours(organization_id: UUID, month: datetime) -> Select[Any]:
    line = invoice_months.c
    return select(*(line[name] for name in (*LINE, *SUMS))).where(
        line.organization_id == organization_id, line.month == month.date()
    )


def _lines(parts: Sequence[Select[Any]]) -> Select[Any]:
    """A row for each price of each key, in the form of `InvoiceLine`. Names are joined after the sums."""
    part = union_all(*parts).subquery("part")
    grouping = [part.c[name] for name in LINE]
    sums = (func.sum(part.c[name]).cast(BigInteger).label(name) for name in SUMS)
    line = select(*grouping, *sums).group_by(*grouping).subquery("line")
    exact = (
        line.c.uncached_tokens.cast(Numeric) * prices.c.input_micro
        + line.c.charged_cached_tokens.cast(Numeric) * prices.c.cached_input_micro
        + line.c.charged_cache_write_tokens.cast(Numeric) * prices.c.cache_write_micro
        + line.c.completion_tokens.cast(Numeric) * prices.c.output_micro
    ) * line.c.price_percent
    computed = {
        "project": projects.c.name,
        "key": api_keys.c.name,
        "price_version": func.nullif(line.c.price_version, 0),
        # a product, because a quotient of large numbers has fewer digits than it needs
        "unrounded_micro": func.coalesce(func.trim_scale(exact * literal_column(f"{_OF_EXACT:f}")), 0),
        "rounding_micro": null(),
        "currency": null(),
    }
    return (
        select(*columns_of(InvoiceLine, line, prices, **computed))
        .select_from(
            line.outerjoin(projects, projects.c.id == line.c.project_id)
            .outerjoin(api_keys, api_keys.c.id == line.c.key_id)
            .outerjoin(prices, prices.c.version == line.c.price_version)
        )
        .order_by(projects.c.name, api_keys.c.name, *(line.c[name] for name in LINE))
    )


class Invoice(msgspec.Struct, frozen=True, kw_only=True):
    """A month. requests and amounts: of all lines. Amounts are in millionths of the currency."""

    organization_id: UUID
    begin: datetime
    end: datetime
    currency: str
    requests: int
    amount_micro: int
    unrounded_micro: Decimal
    rounding_micro: Decimal
    lines: list[InvoiceLine]


async def invoice_of(
    connection: asyncpg.Connection[Any], organization_id: UUID, begin: datetime, end: datetime, currency: str
) -> Invoice:
    """The invoice of a whole month, from single events, as far as they are kept. begin, end: of the requests' arrival,
    in UTC. currency: that of the deployment's prices."""
    line = lines_by_day(organization_id, begin, end)
    parts = [select(*(line.c[name] for name in (*LINE, *SUMS)))]
    return await _invoice(connection, organization_id, begin, end, currency, parts)


async def quick_invoice_of(
    connection: asyncpg.Connection[Any], organization_id: UUID, begin: datetime, end: datetime, currency: str
) -> Invoice:
    """Like `invoice_of`, but it reads few rows. Rows that reach the ledger late are included after the next roll-up."""
    parts = [_of_closed_hours(organization_id, begin)]
    open_since = await fetchval(connection, CLOSED) or begin
    if open_since < end:
        of_events = _of_events(organization_id, max(begin, open_since), end)
        # The statement reads `CLOSED` again, as an hour may have been closed since.
        parts.append(of_events.where(usage_events.c.requested_at >= func.coalesce(CLOSED.scalar_subquery(), begin)))
    return await _invoice(connection, organization_id, begin, end, currency, parts)


async def _invoice(
    connection: asyncpg.Connection[Any],
    organization_id: UUID,
    begin: datetime,
    end: datetime,
    currency: str,
    parts: Sequence[Select[Any]],
) -> Invoice:
    rows = await fetch(connection, _lines(parts))
    lines = [
        msgspec.convert(
            {**row, "rounding_micro": row["amount_micro"] - row["unrounded_micro"], "currency": currency}, InvoiceLine
        )
        for row in rows
    ]
    rounding_micro = sum((line.rounding_micro for line in lines), Decimal())
    amount_micro = sum(line.amount_micro for line in lines)
    return Invoice(
        organization_id=organization_id,
        begin=begin,
        end=end,
        currency=currency,
        requests=sum(line.requests for line in lines),
        amount_micro=amount_micro,
        unrounded_micro=amount_micro - rounding_micro,
        rounding_micro=rounding_micro,
        lines=lines,
    )


def as_csv(invoice: Invoice) -> str:
    """One record for each line, after a header with the fields' names (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(InvoiceLine.__struct_fields__)
    for line in invoice.lines:
        writer.writerow([spreadsheet_cell(value) for value in msgspec.structs.astuple(line)])
    return text.getvalue()


def spreadsheet_cell(value: object) -> object:
    """Mark a name as text if a spreadsheet would take it for a formula."""
    return _FORMULA.sub(r"\1'\2", value) if isinstance(value, str) else value
