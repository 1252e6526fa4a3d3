"""What an organization owes for a month, added up from the ledger's events in one statement."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import BigInteger, Numeric, Select, func, literal, null, select
from sqlalchemy.sql.expression import literal_column

from gateway.db.rows import columns_of, fetch
from gateway.db.tables import api_keys, projects
from gateway.metering.journal.request_id import first_at
from gateway.metering.ledger.events import cached_tokens, in_partitions, written_tokens
from gateway.metering.pricing.price import PER_TOKENS
from gateway.metering.tables import COUNTED, prices, usage_events


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One price of one key. Rates are in micro-units for a million tokens; null: there was no price.

    amount_micro is the sum of the attempts' amounts, each rounded to the nearest micro-unit by itself. unrounded_micro
    is the rates times the tokens, rounded nowhere; rounding_micro, what rounding added to it or took: at most half a
    micro-unit for each request.
    """

    project_id: UUID
    project: str | None
    """Null: there is none of that id any more."""
    key_id: UUID
    key: str | None
    model: str
    tier: str
    price_version: int | None
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


def _lines(organization_id: UUID, begin: datetime, end: datetime) -> Select[Any]:
    """A row for each price of each key, as `InvoiceLine` names them. Names are joined to what was added up."""
    event = usage_events.c
    cached, written = cached_tokens(usage_events), written_tokens(usage_events)
    of_whom = (event.project_id, event.key_id, event.model, event.tier, event.price_version)
    sums = {name: func.sum(event[name]).cast(BigInteger) for name in COUNTED}
    parts = {"plain": event.prompt_tokens - cached - written, "cached": cached, "written": written}
    events = (
        select(
            *of_whom,
            func.count().label("requests"),
            *(total.label(name) for name, total in sums.items()),
            *(func.sum(part).label(name) for name, part in parts.items()),
        )
        .where(
            in_partitions(literal(first_at(begin.timestamp())), literal(first_at(end.timestamp()))),
            event.organization_id == organization_id,
            event.billed,
            event.requested_at >= begin,
            event.requested_at < end,
        )
        .group_by(*of_whom)
        .subquery("events")
    )
    exact = (
        events.c.plain * prices.c.input_micro
        + events.c.cached * prices.c.cached_input_micro
        + events.c.written * prices.c.cache_write_micro
        + events.c.completion_tokens * prices.c.output_micro
    ).cast(Numeric)
    computed = {
        "project": projects.c.name,
        "key": api_keys.c.name,
        "unrounded_micro": func.coalesce(func.trim_scale(exact / literal_column(str(PER_TOKENS))), 0),
        "rounding_micro": null(),
        "currency": null(),
    }
    return (
        select(*columns_of(InvoiceLine, events, prices, **computed))
        .select_from(
            events.outerjoin(projects, projects.c.id == events.c.project_id)
            .outerjoin(api_keys, api_keys.c.id == events.c.key_id)
            .outerjoin(prices, prices.c.version == events.c.price_version)
        )
        .order_by(projects.c.name, api_keys.c.name, events.c.model, events.c.tier, events.c.price_version)
    )


class Invoice(msgspec.Struct, frozen=True, kw_only=True):
    """A month. requests and amounts: of all lines; in millionths of the currency."""

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
    """begin, end: in UTC; of the requests' arrival. currency: what the deployment's prices are in."""
    rows = await fetch(connection, _lines(organization_id, begin, end))
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
    """One record for each line, after a head with the fields' names (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(InvoiceLine.__struct_fields__)
    for line in invoice.lines:
        writer.writerow([_cell(value) for value in msgspec.structs.astuple(line)])
    return text.getvalue()


def _cell(value: object) -> object:
    """A name that a spreadsheet would take for a formula is made text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
