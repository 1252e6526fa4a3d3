"""Exports usage and its cost to finance tools as a FOCUS 1.2 file, after the FinOps Foundation's specification.

A row has one price of one key on one day (UTC). Uncached input, cached input, cache writes and output have separate
rows. The ledger rounds each request's amount to a millionth of the currency. A row of the category `Adjustment` has the
sum of the differences, so that the sum of `BilledCost` equals the invoice to the micro-unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import select

from control.billing.invoice import spreadsheet_cell
from control.billing.invoice_rollup import LINE, SUMS, lines_by_day, next_month
from gateway.metering.pricing.price import PER_TOKENS, WHOLE
from storage.rows import fetch
from storage.tables.core import api_keys, organizations, projects
from storage.tables.metering import prices

PROVIDER = "Slipstream"
_MICRO = Decimal(1_000_000)
COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType", "BillingCurrency",
    "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
    "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost",
    "ContractedUnitPrice", "EffectiveCost", "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice",
    "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId",
    "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter",
    "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
)  # fmt: skip


class _Part(NamedTuple):
    """A kind of token with its own price."""

    meter: str
    tokens: str
    rate: str


PARTS = (
    _Part("Input Tokens", "uncached_tokens", "input_micro"),
    _Part("Cached Input Tokens", "charged_cached_tokens", "cached_input_micro"),
    _Part("Cache Write Tokens", "charged_cache_write_tokens", "cache_write_micro"),
    _Part("Output Tokens", "completion_tokens", "output_micro"),
)


async def focus_csv(
    connection: asyncpg.Connection[Any], organization_id: UUID | None, begin: datetime, end: datetime, currency: str
) -> str:
    """The file of the requests that arrived on whole days (UTC), with a header (RFC 4180). organization_id: None for
    all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    for line in await _lines(connection, organization_id, begin, end):
        for charge in _charges(line, currency):
            writer.writerow(charge)
    return text.getvalue()


async def _lines(
    connection: asyncpg.Connection[Any], organization_id: UUID | None, begin: datetime, end: datetime
) -> list[Any]:
    line = lines_by_day(organization_id, begin, end)
    rates = (prices.c[part.rate] for part in PARTS)
    statement = (
        select(
            line.c.day,
            *(line.c[name] for name in (*LINE, *SUMS)),
            *rates,
            organizations.c.name.label("organization"),
            projects.c.name.label("project"),
            api_keys.c.name.label("key"),
        )
        .select_from(
            line.outerjoin(prices, prices.c.version == line.c.price_version)
            .outerjoin(organizations, organizations.c.id == line.c.organization_id)
            .outerjoin(projects, projects.c.id == line.c.project_id)
            .outerjoin(api_keys, api_keys.c.id == line.c.key_id)
        )
        .order_by(line.c.day, *(line.c[name] for name in LINE))
    )
    return await fetch(connection, statement)


def _charges(line: Any, currency: str) -> Iterator[dict[str, object]]:
    """The rows of one line: its parts, then its rounding. The class `offline` has prices of its own, with their own
    ids."""
    common, percent = _common(line, currency), line["price_percent"]
    version = line["price_version"] if percent == WHOLE else f"{line['price_version']} at {percent} %"
    rest = Decimal(line["amount_micro"]) / _MICRO
    for part in PARTS:
        tokens = line[part.tokens]
        if not tokens:
            continue
        price = None if line[part.rate] is None else Decimal(line[part.rate]) * percent / WHOLE / _MICRO
        quantity = Decimal(tokens) / PER_TOKENS
        cost = Decimal() if price is None else quantity * price
        rest -= cost
        yield {
            **common,
            **_money(cost),
            "ChargeCategory": "Usage",
            "ChargeDescription": f"{part.meter} of {line['model']}",
            "ChargeFrequency": "Usage-Based",
            "ConsumedQuantity": tokens,
            "ConsumedUnit": "Tokens",
            "ContractedUnitPrice": _plain(price),
            "ListUnitPrice": _plain(price),
            "PricingCategory": "Standard",
            "PricingQuantity": _plain(quantity),
            "PricingUnit": f"{PER_TOKENS} Tokens",
            "SkuMeter": part.meter,
            "SkuPriceId": f"{version}/{part.meter}" if line["price_version"] else None,
        }
    if rest:
        yield {
            **common,
            **_money(rest),
            "ChargeCategory": "Adjustment",
            "ChargeDescription": "Rounding of each request to a millionth of the currency",
            "ChargeFrequency": "Usage-Based",
        }


def _common(line: Any, currency: str) -> dict[str, object]:
    """The columns that all rows of a line share."""
    day: date = line["day"]
    month = day.replace(day=1)
    return {
        "BillingAccountId": line["organization_id"],
        "BillingAccountName": spreadsheet_cell(line["organization"]),
        "BillingAccountType": "Organization",
        "BillingCurrency": currency,
        "BillingPeriodStart": _moment(month),
        "BillingPeriodEnd": _moment(next_month(month)),
        "ChargePeriodStart": _moment(day),
        "ChargePeriodEnd": _moment(day + timedelta(days=1)),
        "InvoiceId": f"{line['organization_id']}/{month:%Y-%m}",
        "InvoiceIssuerName": PROVIDER,
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceId": line["key_id"],
        "ResourceName": spreadsheet_cell(line["key"]),
        "ResourceType": "API Key",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": PROVIDER,
        "ServiceSubcategory": "Generative AI",
        "SkuId": spreadsheet_cell(line["model"]),
        "SubAccountId": line["project_id"],
        "SubAccountName": spreadsheet_cell(line["project"]),
        "SubAccountType": "Project",
        "Tags": msgspec.json.encode({"model": line["model"], "tier": line["tier"]}).decode(),
    }


def _money(cost: Decimal) -> dict[str, object]:
    """The four costs, which are equal, as discounts do not exist."""
    return dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), _plain(cost))


def _plain(value: Decimal | None) -> str | None:
    """Format a number without an exponent and without trailing zeros."""
    return None if value is None else f"{value.normalize():f}"


def _moment(day: date) -> str:
    return datetime.combine(day, time(), UTC).isoformat().replace("+00:00", "Z")
