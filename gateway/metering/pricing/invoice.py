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

from gateway.metering.journal.request_id import first_at
from gateway.metering.ledger.ledger import PARTS
from gateway.metering.pricing.price import PER_TOKENS

LINES = f"""
SELECT events.project_id, projects.name AS project, events.key_id, api_keys.name AS key, model, tier, price_version,
       input_micro, cached_input_micro, cache_write_micro, output_micro,
       count(*) AS requests, sum(prompt_tokens)::bigint AS prompt_tokens, sum(cached_tokens)::bigint AS cached_tokens,
       sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(completion_tokens)::bigint AS completion_tokens,
       sum(reasoning_tokens)::bigint AS reasoning_tokens, sum(amount_micro)::bigint AS amount_micro,
       coalesce(trim_scale((
           sum(prompt_tokens - cached - written) * input_micro + sum(cached) * cached_input_micro
           + sum(written) * cache_write_micro + sum(completion_tokens) * output_micro)::numeric / {PER_TOKENS}), 0)
       AS unrounded_micro
  FROM (SELECT project_id, key_id, model, tier, price_version, prompt_tokens, cached_tokens, cache_write_tokens,
               completion_tokens, reasoning_tokens, amount_micro, part.cached, part.written
          FROM gateway.usage_events AS r {PARTS}
         WHERE organization_id = $1 AND billed AND requested_at >= $2 AND requested_at < $3
           AND ((request_id >= $4 AND request_id < $5)
                OR request_id < 'req_016f5e66e800' OR request_id >= 'req_03bb2cc3d800')) AS events
  LEFT JOIN gateway.projects ON projects.id = events.project_id
  LEFT JOIN gateway.api_keys ON api_keys.id = events.key_id
  LEFT JOIN (SELECT version, input_micro, cached_input_micro, cache_write_micro, output_micro FROM gateway.prices)
       AS prices ON version = price_version
 GROUP BY events.project_id, projects.name, events.key_id, api_keys.name, model, tier, price_version, input_micro,
          cached_input_micro, cache_write_micro, output_micro
 ORDER BY projects.name, api_keys.name, model, tier, price_version
"""  # noqa: S608  built from constants


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
    rows = await connection.fetch(
        LINES, organization_id, begin, end, first_at(begin.timestamp()), first_at(end.timestamp())
    )
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
