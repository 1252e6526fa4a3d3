"""`slipstream usage prefix`: the reusable share of a tenant's prompts, and why the rest is not reusable."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in, organization_option
from slipstream.moment import MOMENT, moment
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.prefixes.prefixes import PrefixDrop, PrefixShare

HEAD = (
    "template", "model", "cause", "part", "from token", "requests", "prompt tokens", "came before", "reused",
    "lost, of all",
)  # fmt: skip


@click.command()
@deployment_options
@organization_option
@click.option(
    "--since",
    type=moment,
    metavar="MOMENT",
    default="24h",
    show_default=True,
    help=f"Start of the period: {MOMENT}. It is rounded down to the whole hour, because sums are by hour.",
)
@click.option("--hours", "by_hour", is_flag=True, help="Show each hour separately.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows by hour and the drops, one JSON object per line.")
def prefix(deployment: Deployment, organization: str, since: datetime, by_hour: bool, as_json: bool) -> None:
    """Show how much of an organization's prompts repeats, and why the rest does not.

    Sums cover whole hours (UTC), including the hour of --since and the current one. The command updates them first;
    only the worker detects drops. A block has 64 tokens; tokens after a prompt's last whole block count as lost.
    `cause` is inferred from digests and lengths of the prompts' parts: docs/concepts/prefixes.md.

    \b
    Example:
      slipstream usage prefix --organization acme --since 7d
    """
    from control.prefixes.rollup import roll_up
    from slipstream.administration import administer
    from slipstream.database import adding_up
    from slipstream.tenants import organization_named
    from storage.calendar import hour_of

    settings = running_settings(*deployment)
    days = settings.worker.prefixes.sample_retention_days

    async def work(call: AdminCall) -> tuple[list[PrefixShare], list[PrefixDrop]]:
        from control.prefixes.prefixes import DropQuery, PrefixQuery, list_prefix_drops, list_prefix_shares

        with adding_up(settings):
            await asyncio.to_thread(roll_up, settings.database_url, sample_retention_days=days)
        organization_id = await organization_named(call.connection, organization)
        shares: list[PrefixShare] = []
        until, cursor = datetime.now(UTC), None
        while True:
            query = PrefixQuery(start=hour, end=until, limit=100, cursor=cursor)
            page = await list_prefix_shares(call, organization_id, query)
            shares += page.data
            cursor = page.next_cursor
            if cursor is None:
                break
        drops = await list_prefix_drops(call, organization_id, DropQuery(limit=100))
        return shares, [drop for drop in drops.data if drop.ended_at is None or drop.ended_at >= hour]

    hour = hour_of(since)
    shares, drops = administer(deployment, work)
    if as_json:
        for each in (*shares, *drops):
            print(msgspec.json.encode(each).decode())
        return
    if not shares:
        print(none_in(organization))
    else:
        print(f"requests since {hour:%Y-%m-%d %H:%M} UTC, by whole hours")
    for title, group in _groups(shares, by_hour):
        _print_shares(title, group)
    for drop in drops:
        _print_drop(drop)


def _groups(shares: list[PrefixShare], by_hour: bool) -> list[tuple[str, list[PrefixShare]]]:
    groups: dict[str, list[PrefixShare]] = defaultdict(list)
    for share in shares:
        groups[f"{share.hour:%Y-%m-%d %H:%M} (UTC)" if by_hour else ""].append(share)
    return list(groups.items())


def _print_shares(hour: str, shares: list[PrefixShare]) -> None:
    """Print the reusable share of all prompts, then each template's loss by cause, largest first."""
    prompts = sum(share.prompt_tokens for share in shares)
    reusable = sum(share.reusable_tokens for share in shares) / max(prompts, 1)
    cached = sum(share.cached_tokens for share in shares) / max(prompts, 1)
    summary = (
        f"{reusable:.1%} of {prompts:,} prompt tokens repeat an earlier prompt, counted in whole blocks; engines took "
        f"{cached:.1%} from their caches"
    )
    if cached > reusable:
        summary += ", which hold parts of blocks too"
    print(f"{hour}: {summary}" if hour else summary)
    groups: dict[tuple[str, ...], list[PrefixShare]] = defaultdict(list)
    for share in shares:
        groups[share.template, share.model, share.cause.value, share.part].append(share)
    rows = sorted(((_lost(group), key, group) for key, group in groups.items()), reverse=True, key=lambda row: row[0])
    print("\n".join(table(HEAD, [(*key[:3], key[3] or "-", *_cells(group, prompts)) for _, key, group in rows])))


def _lost(shares: list[PrefixShare]) -> int:
    return sum(share.prompt_tokens - share.reusable_tokens for share in shares)


def _cells(shares: list[PrefixShare], all_prompts: int) -> list[str]:
    prompts = sum(share.prompt_tokens for share in shares)
    first = min((share.differing_token for share in shares if share.differing_token is not None), default=None)
    return [
        "-" if first is None else f"{first:,}",
        f"{sum(share.requests for share in shares):,}",
        f"{prompts:,}",
        f"{sum(share.reusable_tokens for share in shares) / max(prompts, 1):.1%}",
        f"{sum(share.cached_tokens for share in shares) / max(prompts, 1):.1%}",
        f"{_lost(shares) / max(all_prompts, 1):.1%}",
    ]


def _print_drop(drop: PrefixDrop) -> None:
    ended = "not over" if drop.ended_at is None else f"over at {drop.ended_at:%Y-%m-%d %H:%M}"
    print(f"\ndropped at {drop.began_at:%Y-%m-%d %H:%M} (UTC) from {drop.usual_share:.1%} to {drop.share:.1%}, {ended}")
    if drop.cause is not None:
        place = "" if drop.part is None else f" in {drop.part.value}"
        number = "" if drop.part_number is None else f" {drop.part_number}"
        token = "" if drop.differing_token is None else f", from token {drop.differing_token:,}"
        print(f"  template {drop.template} of {drop.model}: {drop.cause.value}{place}{number}{token}")
