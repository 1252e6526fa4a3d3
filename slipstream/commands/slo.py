"""`slipstream slo`: which objectives are kept, what is left of their error budgets, what a million good tokens cost."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.generation import Tier
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.hints import command
from slipstream.moment import MOMENT, moment
from slipstream.table import table

if TYPE_CHECKING:
    from gateway.admin.call import AdminCall
    from gateway.admin.resources.slo import GoodputTotals, ObjectiveStanding, PoolCosts, SloReport
    from gateway.slo.cost import PoolCost

HEAD = ("tier", "length", "promised", "target", "counted", "good", "ttft", "tpot", "gap", "failed", "burn 1h", "6h",
        "3d", "budget left")  # fmt: skip
POOLS = ("pool", "replica-hours", "good tokens", "priced hours", "cost", "priced tokens", "per million")
LEGEND = (
    "counted: answered, or failed by the platform's fault; good: kept every figure promised; ttft, tpot, gap: kept "
    "that one\nburn: how fast the error budget is used, 1 spends it exactly in 28 days; budget left: of these 28 days\n"
    "cost, priced tokens, per million: of the whole minutes in which the pool had a price, the same for all three"
)


class Told(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    since: datetime
    until: datetime
    slo: SloReport
    totals: list[GoodputTotals]
    """Of the period, by tier and length."""
    pools: PoolCosts | None
    """None for one organization."""


@click.command()
@deployment_options
@click.option("--organization", help="Id or name. Default: all.")
@click.option("--tier", type=click.Choice([tier.value for tier in Tier]), help="Default: both.")
@click.option(
    "--since",
    type=moment,
    default="24h",
    show_default=True,
    metavar="MOMENT",
    help=MOMENT,
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def slo(deployment: Deployment, organization: str | None, tier: str | None, since: datetime, as_json: bool) -> None:
    """Show objectives, error budgets, burn rates and the cost of good tokens.

    Brings the totals up to date first. Exit code 1 while an error budget is used faster than an alert allows.

    \b
    Examples:
      slipstream slo
      slipstream slo --organization acme --tier chat --since 7d
    """
    told = _gathered(deployment, organization, tier, since)
    if as_json:
        print(msgspec.json.encode(told).decode())
    elif not told.slo.objectives:
        what = (
            "no worker has put objectives in force yet" if not told.slo.version else "nothing is promised to this tier"
        )
        print(f"{what}; `{command('status')}` shows the processes")
    else:
        _print(told)
    if any(each.burning for each in told.slo.objectives):
        sys.exit(1)


def _gathered(deployment: Deployment, organization: str | None, tier: str | None, since: datetime) -> Told:
    from gateway.admin.resources import slo as resource
    from gateway.slo.rollup import roll_up
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    settings = running_settings(*deployment)
    retention_days = settings.worker.ledger.trace_retention_days

    async def work(call: AdminCall) -> Told:
        await asyncio.to_thread(roll_up, settings.database_url, trace_retention_days=retention_days)
        # a minute counts by its beginning: the one that runs is told too, and the one in which the period begins
        begin, end = since.replace(second=0, microsecond=0), datetime.now(UTC) + timedelta(seconds=1)
        asked: dict[str, object] = {"tier": tier}
        period: dict[str, object] = {"start": begin, "end": end}
        every = {**asked, **period, "bucket": "all", "group_by": ["tier", "length"], "limit": 100}
        report = converted(asked, resource.SloQuery)
        if organization is not None:
            whose = await organization_named(call.connection, organization)

            async def goodput(asked: dict[str, object]) -> list[GoodputTotals]:
                return (await resource.get_goodput(call, whose, converted(asked, resource.GoodputQuery))).data

            found, costs = await resource.get_slo(call, whose, report), None
        else:

            async def goodput(asked: dict[str, object]) -> list[GoodputTotals]:
                query = converted(asked, resource.DeploymentGoodputQuery)
                return (await resource.get_goodput_of_all(call, query)).data

            found = await resource.get_slo_of_all(call, report)
            costs = await resource.get_pool_costs(call, converted(period, resource.CostQuery))
        totals = {(each.tier, each.length): each for each in await goodput(every)}
        for of in found.objectives:
            if of.promised_since is not None and begin < of.promised_since < end:
                since_then = {**every, "start": of.promised_since, "tier": of.tier.value, "length": of.length.value}
                totals.pop((of.tier.value, of.length.value), None)
                totals.update({(each.tier, each.length): each for each in await goodput(since_then)})
        return Told(begin, end, found, list(totals.values()), costs)

    return administer(deployment, work)


def _print(told: Told) -> None:
    totals = {(each.tier, each.length): each for each in told.totals}
    rows = [_cells(each, totals.get((each.tier.value, each.length.value))) for each in told.slo.objectives]
    print(f"objectives version {told.slo.version}, requests since {told.since:%Y-%m-%d %H:%M} UTC")
    print("\n".join(table(HEAD, rows)))
    for each in told.slo.objectives:
        for pair in each.burning[:1]:  # the fastest; slower ones are seldom news beside it
            print(
                f"{each.tier.value} {each.length.value}: the budget burns more than {pair.threshold:g} times too fast, "
                f"over {pair.long} and still over {pair.short}; `{command('diagnose')}` says why"
            )
    for each in told.slo.objectives:
        if each.promised_since is not None and each.promised_since > told.since:
            print(
                f"{each.tier.value} {each.length.value}: counted since {each.promised_since:%Y-%m-%d %H:%M} UTC, when "
                "these figures are in force; earlier requests were judged by others"
            )
    for of in told.totals:
        if of.over_share:
            print(_over_share(of, of_all=told.pools is not None))
    if told.pools is not None and told.pools.data:
        print()
        print("\n".join(table(POOLS, [_pool(each, told.pools.currency) for each in told.pools.data])))
        for pool in told.pools.data:
            if pool.priced_since is not None and pool.priced_since > told.pools.start:
                print(f"{pool.pool}: its price counts since {pool.priced_since:%Y-%m-%d %H:%M} UTC", file=sys.stderr)
        if all(each.priced_since is None for each in told.pools.data):
            print(
                "no pool had a price for a whole minute: pools[].price_per_replica_hour in the settings",
                file=sys.stderr,
            )
    if not any(each.counted for each in told.totals):
        print("no request counted in this time; --since 7d looks further back", file=sys.stderr)
    print(LEGEND, file=sys.stderr)


def _cells(each: ObjectiveStanding, of: GoodputTotals | None) -> list[str]:
    promised = [f"ttft {each.ttft_ms:g} ms"]
    promised += [] if each.tpot_ms is None else [f"tpot {each.tpot_ms:g} ms"]
    promised += [] if each.itl_max_ms is None else [f"gap {each.itl_max_ms:g} ms"]
    rates = {window.window: window.burn_rate for window in each.windows}
    counted = 0 if of is None else of.counted
    kept = ["-"] * 4 if of is None else [
        share(part, counted) for part in (of.good, of.ttft_kept, of.tpot_kept, of.gap_kept)
    ]  # fmt: skip
    return [
        each.tier.value,
        each.length.value,
        ", ".join(promised),
        f"{each.target * 100:g}%",
        f"{counted:,}",
        *kept,
        "0" if of is None else f"{of.failed:,}",
        *("-" if (rate := rates[name]) is None else f"{rate:.1f}" for name in ("1h", "6h", "3d")),
        _budget(each),
    ]


def _budget(each: ObjectiveStanding) -> str:
    """The rest of an error budget, or how many times it is spent; "-" for so few requests that none may be bad."""
    counted = each.windows[-1].counted
    if each.budget_left is None or counted * (1 - each.target) < 1:
        return "-"
    return f"{each.budget_left:.0%}" if each.budget_left >= 0 else f"spent {1 - each.budget_left:.1f} times"


def _over_share(of: GoodputTotals, *, of_all: bool) -> str:
    """of_all: of the whole deployment, which does not count them."""
    shed = f"{of.over_share:,} requests shed while their organization asked for more than its share"
    if of_all:
        return f"{of.tier} {of.length}: not counted are {shed}; `{command('diagnose')}` says whose"
    return f"{of.tier} {of.length}: of the counted ones that were not good, {shed}"


def _pool(each: PoolCost, currency: str) -> list[str]:
    from slipstream.money import told

    amounts = (each.amount_micro, each.per_million_good_tokens_micro)
    cost, per_million = ("-" if micro is None else told(micro, currency) for micro in amounts)
    priced = f"{each.priced_replica_hours:,.2f}", cost, f"{each.priced_good_tokens:,}"
    return [each.pool, f"{each.replica_hours:,.2f}", f"{each.good_tokens:,}", *priced, per_million]


def share(part: int, whole: int) -> str:
    """`99.12%`, cut rather than rounded up: 100% is said of all alone."""
    return "-" if not whole else f"{part * 10_000 // whole / 100:.2f}%"
