"""`slipstream usage`: invoices, and whether totals agree with the ledger."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Any

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options, running_settings


@click.group()
def usage() -> None:
    """Invoices and checks of the ledger."""


@usage.command()
@deployment_options
@click.option("--days", default=2, show_default=True, type=click.IntRange(0, 366), help="How many days before today.")
def verify(deployment: Deployment, days: int) -> None:
    """Bring the totals by hour and day up to date and compare them with the events. Exit code 1 when they differ."""
    from gateway.metering.ledger.verification import last_days
    from gateway.metering.ledger.verification import verify as run

    found = run(running_settings(*deployment).database_url, *last_days(days))
    print(msgspec.json.encode(found).decode())
    if not found.right:
        print("the totals do not agree with the events; see docs/runbooks/drift.md", file=sys.stderr)
        sys.exit(1)


@usage.command()
@deployment_options
@click.option("--organization", required=True, help="Id or name.")
@click.option("--month", required=True, help="As 2026-11; months begin and end in UTC.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of CSV.")
def invoice(deployment: Deployment, organization: str, month: str, as_json: bool) -> None:
    """Write what an organization owes for a month: a line for each project, key, model, tier and price.

    Each request's amount is rounded to a millionth of the currency by itself: `unrounded_micro` is the rates times the
    tokens, and `rounding_micro` what rounding added.

    \b
    Example:
      slipstream usage invoice --organization acme --month 2026-11 > acme.csv
    """
    from gateway.admin.moments import month as period_of
    from gateway.metering.pricing.invoice import Invoice, as_csv, invoice_of
    from slipstream.database import connected
    from slipstream.tenants import organization_named

    period = period_of(month)
    if period is None:
        raise click.BadParameter(f"{month!r} is no month; write it as 2026-11", param_hint="--month")

    async def run(begin: datetime, end: datetime) -> Invoice:
        settings = running_settings(*deployment)
        async with connected(settings) as connection:
            found = await organization_named(connection, organization)
            return await invoice_of(connection, found, begin, end, settings.currency)

    found: Any = asyncio.run(run(*period))
    print(msgspec.json.encode(found).decode() if as_json else as_csv(found), end="\n" if as_json else "")
