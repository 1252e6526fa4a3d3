"""`slipstream usage autocomplete`: the outcomes of completions in editors, and the best layout for a tenant's code."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.autocomplete_fit import fit
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in, organization_option
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.completions.autocomplete import AutocompleteTotals

GROUPS = ("day", "language", "client", "model", "project")


@click.group()
def autocomplete() -> None:
    """Show how often completions are accepted; fit prompts to your code."""


autocomplete.add_command(fit)


@autocomplete.command()
@deployment_options
@organization_option
@click.option("--days", type=click.IntRange(1, 92), default=7, show_default=True, help="Number of days until now.")
@click.option(
    "--by", "group_by", multiple=True, type=click.Choice(GROUPS), help="Field to group by. Repeat for several."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def stats(deployment: Deployment, organization: str, days: int, group_by: tuple[str, ...], as_json: bool) -> None:
    """Show the outcomes of an organization's completions, as its editors reported them.

    The command updates the totals first. They cover whole hours, including the hour in which the period begins.

    \b
    Example:
      slipstream usage autocomplete stats --organization acme --by language --by client
    """
    from control.completions.autocomplete import AutocompleteQuery, get_autocomplete
    from control.completions.rollup import roll_up
    from slipstream.administration import administer, converted
    from slipstream.database import adding_up
    from slipstream.tenants import organization_named

    settings = running_settings(*deployment)
    retention_days = settings.worker.ledger.trace_retention_days
    end = datetime.now(UTC)
    query = {"start": end - timedelta(days=days), "end": end, "group_by": list(group_by), "limit": 100}

    async def work(call: AdminCall) -> list[AutocompleteTotals]:
        found: list[AutocompleteTotals] = []
        organization_id = await organization_named(call.connection, organization)
        with adding_up(settings):
            await asyncio.to_thread(roll_up, settings.database_url, trace_retention_days=retention_days)
        cursor = None
        while True:
            page = await get_autocomplete(
                call, organization_id, converted({**query, "cursor": cursor}, AutocompleteQuery)
            )
            found += page.data
            cursor = page.next_cursor
            if cursor is None:
                return found

    totals = administer(deployment, work)
    if as_json:
        for each in totals:
            print(msgspec.json.encode(each).decode())
        return
    head = (
        *(name for name in GROUPS if name in group_by),
        "completions",
        "empty",
        "abandoned",
        "superseded",
        "shown",
        "accepted",
        "dismissed",
        "rate",
        "offered",
        "kept",
        "p50",
        "p95",
    )
    rows = [(*_group(each, group_by), *_cells(each)) for each in totals]
    print("\n".join(table(head, rows)) if rows else none_in(organization))


def _group(totals: AutocompleteTotals, group_by: tuple[str, ...]) -> list[str]:
    fields = [("project_id" if name == "project" else name) for name in GROUPS if name in group_by]
    return [str(getattr(totals, name)) for name in fields]


def _cells(totals: AutocompleteTotals) -> list[str]:
    rate = totals.acceptance_rate
    latencies = (totals.latency_p50_ms, totals.latency_p95_ms)
    return [
        *(f"{count:,}" for count in (totals.completions, totals.empty, totals.abandoned, totals.superseded)),
        *(f"{count:,}" for count in (totals.shown, totals.accepted, totals.dismissed)),
        "-" if rate is None else f"{rate:.1%}",
        f"{totals.characters_offered:,}",
        f"{totals.characters_kept:,}",
        *("-" if latency_ms is None else f"{latency_ms:,.0f} ms" for latency_ms in latencies),
    ]
