"""`slipstream usage`: totals, invoices, drafts by organization, and the check of totals against the ledger."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slipstream.command_table import Group
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in, organization_option
from slipstream.money import amount, told
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.billing.good_tokens import TokenCostReport
    from control.billing.invoice import Invoice
    from control.billing.usage import UsageTotals
    from control.billing.verification import Verification


GROUPS = ("day", "project", "key", "model", "tier", "adapter")
COST_GROUPS = ("organization", "tier", "length")
COST_HEAD = ("organization", "tier", "length", "requests", "good", "good in", "good out", "billed")
SUMS = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")


@click.group(cls=Group)
def usage() -> None:
    """Show totals, invoices, ledger checks, prefixes and completions."""


@usage.command()
@deployment_options
@click.option("--days", default=2, show_default=True, type=click.IntRange(0, 366), help="Number of days before today.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(deployment: Deployment, days: int, as_json: bool) -> None:
    """Update the totals by hour and day, and compare them with the events. Exit code 1: they differ."""
    from control.billing.verification import last_days
    from control.billing.verification import verify as run
    from slipstream.database import adding_up

    settings = running_settings(*deployment)
    with adding_up(settings):
        found = run(settings.database_url, *last_days(days))
    print(msgspec.json.encode(found).decode() if as_json else _verified(found))
    if not found.right:
        sys.exit(1)


def _verified(found: Verification) -> str:
    """A sentence that states whether totals and events agree."""
    days = f"of the days from {found.from_day} and before {found.until_day} (UTC)"
    if found.right:
        return f"right: totals and amounts {days} agree with all {found.rows:,} attempts"
    return (
        f"wrong: {found.wrong_hours:,} hours, {found.wrong_days:,} days and {found.wrong_amounts:,} amounts {days} do "
        f"not agree with the {found.rows:,} attempts; see docs/runbooks/drift.md"
    )


@usage.command()
@deployment_options
@organization_option
@click.option(
    "--days", type=click.IntRange(1, 366), default=30, show_default=True, help="Number of days, including today."
)
@click.option(
    "--by", "group_by", multiple=True, type=click.Choice(GROUPS), help="Field to group by. Repeat for several."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def totals(deployment: Deployment, organization: str, days: int, group_by: tuple[str, ...], as_json: bool) -> None:
    """Show the totals billed to an organization over whole days (UTC), a few seconds old.

    \b
    Example:
      slipstream usage totals --organization acme --by model --by adapter
    """
    from control.billing.usage import MAX_TOTALS, TotalsQuery, get_usage
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    end = datetime.now(UTC)
    begin = datetime.combine(end.date() - timedelta(days=days - 1), datetime.min.time(), UTC)
    values = {
        "start": begin, "end": end, "limit": MAX_TOTALS, "bucket": "day" if "day" in group_by else "all",
        "group_by": [name for name in group_by if name != "day"],
    }  # fmt: skip

    async def work(call: AdminCall) -> list[UsageTotals]:
        found: list[UsageTotals] = []
        organization_id = await organization_named(call.connection, organization)
        cursor = None
        while True:
            page = await get_usage(call, organization_id, converted({**values, "cursor": cursor}, TotalsQuery))
            found += page.data
            cursor = page.next_cursor
            if cursor is None:
                return found

    found = administer(deployment, work)
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    currency = running_settings(*deployment).currency
    head = (*(name for name in GROUPS if name in group_by), *SUMS, "amount")
    rows = [
        (*_group(each, group_by), *(f"{getattr(each, name):,}" for name in SUMS), told(each.amount_micro, currency))
        for each in found
    ]
    print("\n".join(table(head, rows)) if rows else none_in(organization))


def _group(totals: UsageTotals, group_by: tuple[str, ...]) -> list[str]:
    names = [f"{name}_id" if name in ("project", "key") else name for name in GROUPS if name in group_by]
    return [str(getattr(totals, name)) or "-" for name in names]


@usage.command()
@deployment_options
@organization_option
@click.option("--month", help="Month, such as 2026-11 (UTC). Default: this month.")
@click.option(
    "--csv",
    "form",
    flag_value="csv",
    help="Print CSV with ids, rates and rounding. Amounts are in millionths of the currency.",
)
@click.option("--json", "form", flag_value="json", help="Print one JSON object.")
def invoice(deployment: Deployment, organization: str, month: str | None, form: str | None) -> None:
    """Show an organization's invoice for a month, with a line for each project, key, model, tier and price.

    The amount of each request is rounded separately to a millionth of the currency. In CSV and JSON, `unrounded_micro`
    is the rates times the tokens, and `rounding_micro` is the amount that rounding added.

    \b
    Examples:
      slipstream usage invoice --organization acme --month 2026-11
      slipstream usage invoice --organization acme --month 2026-11 --csv > acme.csv
    """
    from control.api.moments import month as period_of
    from control.billing.invoice import as_csv, invoice_of
    from slipstream.database import connected
    from slipstream.tenants import organization_named

    month = f"{datetime.now(UTC):%Y-%m}" if month is None else month
    period = period_of(month)
    if period is None:
        raise click.BadParameter(f"{month!r} is not a month; write it as 2026-11", param_hint="--month")

    async def run(begin: datetime, end: datetime) -> tuple[str, Invoice]:
        settings = running_settings(*deployment)
        async with connected(settings) as connection:
            found = await organization_named(connection, organization)
            name = await connection.fetchval("SELECT name FROM gateway.organizations WHERE id = $1", found)
            return name, await invoice_of(connection, found, begin, end, settings.currency)

    name, found = asyncio.run(run(*period))
    if form == "csv":
        print(as_csv(found), end="")
    else:
        print(msgspec.json.encode(found).decode() if form == "json" else _invoice_text(found, name))


@usage.command()
@deployment_options
@click.option(
    "--format", "form", type=click.Choice(["focus"]), default="focus", show_default=True, help="Format of the file."
)
@click.option("--month", required=True, help="Month, such as 2026-11 (UTC).")
@click.option("--organization", help="Organization: id or name. Default: all organizations.")
def export(deployment: Deployment, form: str, month: str, organization: str | None) -> None:
    """Write a month's usage and cost as CSV for finance tools (FOCUS 1.2), by day, key, model and kind of token. The
    sum of `BilledCost` equals the sum of the invoices."""
    from control.api.moments import month as period_of
    from control.billing.focus import focus_csv
    from slipstream.database import connected
    from slipstream.tenants import organization_named

    period = period_of(month)
    if period is None:
        raise click.BadParameter(f"{month!r} is not a month; write it as 2026-11", param_hint="--month")

    async def run(begin: datetime, end: datetime) -> str:
        settings = running_settings(*deployment)
        async with connected(settings) as connection:
            one = None if organization is None else await organization_named(connection, organization)
            return await focus_csv(connection, one, begin, end, settings.currency)

    print(asyncio.run(run(*period)), end="")


@usage.command("good-tokens")
@deployment_options
@click.option("--organization", help="Organization: id or name. Default: all organizations.")
@click.option("--days", type=click.IntRange(1, 31), default=1, show_default=True, help="Number of days until now.")
@click.option(
    "--by", "group_by", multiple=True, type=click.Choice(COST_GROUPS), help="Field to group by. Repeat for several."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def good_tokens(
    deployment: Deployment, organization: str | None, days: int, group_by: tuple[str, ...], as_json: bool
) -> None:
    """Show the cost of a million tokens that met their objectives, input and output separately.

    The amounts are those of all billed requests, so a missed objective makes good tokens more expensive.

    \b
    Example:
      slipstream usage good-tokens --days 7 --by tier --by length
    """
    from control.billing.good_tokens import TokenCostQuery, get_token_costs, get_token_costs_of_all
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    end = datetime.now(UTC)
    values = {"start": end - timedelta(days=days), "end": end, "group_by": list(group_by)}

    async def work(call: AdminCall) -> TokenCostReport:
        query = converted(values, TokenCostQuery)
        if organization is None:
            return await get_token_costs_of_all(call, query)
        return await get_token_costs(call, await organization_named(call.connection, organization), query)

    found = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    head = (*COST_HEAD, f"{found.currency} a million in", f"{found.currency} a million out")
    rows = [
        (
            str(each.organization_id or "-"),
            each.tier or "-",
            each.length or "-",
            f"{each.requests:,}",
            f"{each.good:,}",
            f"{each.good_input_tokens:,}",
            f"{each.good_output_tokens:,}",
            amount(each.amount_micro),
            *(
                "-" if micro is None else amount(micro)
                for micro in (each.per_million_good_input_micro, each.per_million_good_output_micro)
            ),
        )
        for each in found.data
    ]
    print("\n".join(table(head, rows)) if rows else "nothing was billed in this period")


def _invoice_text(found: Invoice, organization: str) -> str:
    head = (
        "project", "key", "model", "tier", "requests", "prompt", "cached", "output", "share of price", found.currency
    )  # fmt: skip
    rows = [
        (
            each.project or str(each.project_id),
            each.key or str(each.key_id),
            each.model,
            each.tier,
            *(
                f"{count:,}"
                for count in (each.requests, each.prompt_tokens, each.cached_tokens, each.completion_tokens)
            ),
            "no price" if each.price_version is None else f"{each.price_percent} %",
            amount(each.amount_micro),
        )
        for each in found.lines
    ]
    owed = f"{organization} owes {told(found.amount_micro, found.currency)} for {found.begin:%B %Y} (UTC)"
    summary = f"{owed}, {found.requests:,} requests"
    return "\n".join((summary, "", *table(head, rows))) if rows else summary


@usage.command()
@deployment_options
@click.option("--organization", help="Organization: id or name. Default: all organizations.")
@click.option(
    "--days", type=click.IntRange(1, 366), default=7, show_default=True, help="Number of whole days (UTC) until now."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def drafts(deployment: Deployment, organization: str | None, days: int, as_json: bool) -> None:
    """Show how many tokens engines drafted, and how many of them were accepted, by organization and model.

    Accepted drafts lower the time per token while the batch has room; they do not lower the time to first token.

    \b
    Example:
      slipstream usage drafts --organization acme --days 30
    """
    from control.billing.usage import MAX_TOTALS, TotalsQuery, get_usage, get_usage_of_all
    from control.tenants.organizations import get_organization
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    end = datetime.now(UTC)
    values = {"start": end - timedelta(days=days), "end": end, "bucket": "all", "group_by": ["organization", "model"]}

    async def work(call: AdminCall) -> list[tuple[str, UsageTotals]]:
        one = None if organization is None else await organization_named(call.connection, organization)
        found: list[tuple[str, UsageTotals]] = []
        names: dict[Any, str] = {}
        cursor = None
        while True:
            query = converted({**values, "limit": MAX_TOTALS, "cursor": cursor}, TotalsQuery)
            page = await get_usage_of_all(call, query) if one is None else await get_usage(call, one, query)
            for each in page.data:
                owner = each.organization_id
                if owner is not None and owner not in names:
                    names[owner] = (await get_organization(call, owner)).name
                found.append((names[owner], each))
            cursor = page.next_cursor
            if cursor is None:
                return found

    drafted = administer(deployment, work)
    if as_json:
        for name, each in drafted:
            shown = {
                "organization": name,
                "model": each.model,
                "completion_tokens": each.completion_tokens,
                "draft_tokens": each.draft_tokens,
                "accepted_draft_tokens": each.accepted_draft_tokens,
                "acceptance": _acceptance(each),
            }
            print(msgspec.json.encode(shown).decode())
        return
    rows = [
        (
            name,
            str(each.model),
            f"{each.completion_tokens:,}",
            f"{each.draft_tokens:,}",
            f"{each.accepted_draft_tokens:,}",
            "-" if (part := _acceptance(each)) is None else f"{part:.1%}",
        )
        for name, each in drafted
    ]
    head = ("organization", "model", "output tokens", "drafted", "accepted", "rate")
    print("\n".join(table(head, rows)) if rows else f"nothing was used in {days} days")


def _acceptance(totals: UsageTotals) -> float | None:
    """Accepted share of the drafts; None if none were reported."""
    return totals.accepted_draft_tokens / totals.draft_tokens if totals.draft_tokens else None
