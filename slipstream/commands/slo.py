"""`slipstream diagnose slo`: the objectives, the rest of their error budgets, and the cost of good tokens."""

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
    from control.api.call import AdminCall
    from control.slo.cost import PoolCost
    from control.slo.slo import GoodputTotals, ObjectiveStanding, PoolCosts, SloReport

HEAD = ("class", "ttft/tpot/gap", "target", "counted", "good", "burn 1h", "6h", "3d", "budget left")
POOLS = ("pool", "replica-h", "good tokens", "priced h", "{} spent", "priced tokens", "{} a million")
LEGEND = (
    "ttft/tpot/gap: objectives in ms; counted: requests that were answered, or failed by the platform's fault\n"
    "good: requests that met every objective\n"
    "burn: rate at which the error budget is used; 1 spends it exactly in 28 days\n"
    "budget left: share of the error budget of these 28 days\n"
    "priced h, spent, priced tokens, a million: for the whole minutes in which the pool had a price"
)


class Told(msgspec.Struct, frozen=True):
    """The output of `--json`."""

    since: datetime
    until: datetime
    slo: SloReport
    totals: list[GoodputTotals]
    """Totals of the period, by tier and length."""
    pools: PoolCosts | None
    """None for one organization."""


@click.command()
@deployment_options
@click.option("--organization", help="Organization: id or name. Default: all organizations.")
@click.option("--tier", type=click.Choice([tier.value for tier in Tier]), help="Tier. Default: both.")
@click.option(
    "--since",
    type=moment,
    default="24h",
    show_default=True,
    metavar="MOMENT",
    help=MOMENT,
)
@click.option("--explain", is_flag=True, help="Explain the columns too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def slo(
    deployment: Deployment, organization: str | None, tier: str | None, since: datetime, explain: bool, as_json: bool
) -> None:
    """Show objectives, error budgets, burn rates and the cost of good tokens.

    The command updates the totals first. Exit code 1: an error budget is being used faster than an alert allows.

    \b
    Examples:
      slipstream diagnose slo
      slipstream diagnose slo --organization acme --tier chat --since 7d
    """
    result = _gathered(deployment, organization, tier, since)
    if as_json:
        print(msgspec.json.encode(result).decode())
    elif not result.slo.objectives:
        what = "no worker has put objectives in force yet" if not result.slo.version else "this tier has no objectives"
        print(f"{what}; `{command('status')}` shows the processes")
    else:
        _print(result, explain=explain)
    if any(each.burning for each in result.slo.objectives):
        sys.exit(1)


def _gathered(deployment: Deployment, organization: str | None, tier: str | None, since: datetime) -> Told:
    from control.slo import slo as resource
    from control.slo.rollup import roll_up
    from slipstream.administration import administer, converted
    from slipstream.database import adding_up
    from slipstream.tenants import organization_named

    settings = running_settings(*deployment)
    retention_days = settings.worker.ledger.trace_retention_days

    async def work(call: AdminCall) -> Told:
        with adding_up(settings):
            await asyncio.to_thread(roll_up, settings.database_url, trace_retention_days=retention_days)
        # A minute counts by its start. The current one is included, and the one in which the period begins.
        begin, end = since.replace(second=0, microsecond=0), datetime.now(UTC) + timedelta(seconds=1)
        only: dict[str, object] = {"tier": tier}
        period: dict[str, object] = {"start": begin, "end": end}
        every = {**only, **period, "bucket": "all", "group_by": ["tier", "length"], "limit": 100}
        report = converted(only, resource.SloQuery)
        if organization is not None:
            owner = await organization_named(call.connection, organization)

            async def goodput(values: dict[str, object]) -> list[GoodputTotals]:
                return (await resource.get_goodput(call, owner, converted(values, resource.GoodputQuery))).data

            found, costs = await resource.get_slo(call, owner, report), None
        else:

            async def goodput(values: dict[str, object]) -> list[GoodputTotals]:
                query = converted(values, resource.DeploymentGoodputQuery)
                return (await resource.get_goodput_of_all(call, query)).data

            found = await resource.get_slo_of_all(call, report)
            costs = await resource.get_pool_costs(call, converted(period, resource.CostQuery))
        totals = {(each.tier, each.length): each for each in await goodput(every)}
        for one in found.objectives:
            if one.promised_since is not None and begin < one.promised_since < end:
                since_then = {**every, "start": one.promised_since, "tier": one.tier.value, "length": one.length.value}
                totals.pop((one.tier.value, one.length.value), None)
                totals.update({(each.tier, each.length): each for each in await goodput(since_then)})
        return Told(begin, end, found, list(totals.values()), costs)

    return administer(deployment, work)


def _print(result: Told, *, explain: bool) -> None:
    totals = {(each.tier, each.length): each for each in result.totals}
    rows = [_cells(each, totals.get((each.tier.value, each.length.value))) for each in result.slo.objectives]
    print(_answer(result))
    for each in result.slo.objectives:
        for pair in each.burning[:1]:  # the fastest; slower ones rarely add anything
            print(
                f"{_class(each)}: the budget burns at more than {pair.threshold:g} times the allowed rate, "
                f"over {pair.long} and still over {pair.short}"
            )
    print()
    print("\n".join(table(HEAD, rows)))
    for each in result.slo.objectives:
        found = totals.get((each.tier.value, each.length.value))
        if found is not None and found.good < found.counted:
            print(_parts_kept(each, found))
    for each in result.slo.objectives:
        if each.promised_since is not None and each.promised_since > result.since:
            print(
                f"{_class(each)}: counted since {each.promised_since:%Y-%m-%d %H:%M} UTC, when these figures took "
                "effect;\n  earlier requests were judged by others"
            )
    for found in result.totals:
        if found.over_share:
            print(_over_share(found, of_all=result.pools is not None))
    if result.pools is not None and result.pools.data:
        print()
        head = [name.format(result.pools.currency) for name in POOLS]
        print("\n".join(table(head, [_pool(each) for each in result.pools.data])))
        for pool in result.pools.data:
            if pool.priced_since is not None and pool.priced_since > result.pools.start:
                print(f"{pool.pool}: its price counts since {pool.priced_since:%Y-%m-%d %H:%M} UTC", file=sys.stderr)
        if all(each.priced_since is None for each in result.pools.data):
            print(
                "no pool had a price for a whole minute: pools[].price_per_replica_hour in the settings",
                file=sys.stderr,
            )
    if not any(each.counted for each in result.totals):
        print("no request counted in this time; --since 7d looks further back", file=sys.stderr)
    if explain:
        print(LEGEND, file=sys.stderr)


def _answer(result: Told) -> str:
    """The first line: whether an alert fires."""
    objectives = result.slo.objectives
    burning = sum(bool(each.burning) for each in objectives)
    line = (
        f"{burning} of {len(objectives)} error budgets burn too fast" if burning else "No error budget burns too fast"
    )
    line += f" (objectives version {result.slo.version}, requests since {result.since:%Y-%m-%d %H:%M} UTC)"
    return f"{line}\n`{command('diagnose')}` names the requests" if burning else line


def _class(each: ObjectiveStanding) -> str:
    return f"{each.tier.value} {each.length.value}"


def _parts_kept(each: ObjectiveStanding, found: GoodputTotals) -> str:
    ttft, tpot, gap = (share(part, found.counted) for part in (found.ttft_kept, found.tpot_kept, found.gap_kept))
    return f"{_class(each)}: kept ttft {ttft}, tpot {tpot}, gap {gap}; failed {found.failed:,}"


def _cells(each: ObjectiveStanding, found: GoodputTotals | None) -> list[str]:
    promised = ("-" if value is None else f"{value:g}" for value in (each.ttft_ms, each.tpot_ms, each.itl_max_ms))
    rates = {window.window: window.burn_rate for window in each.windows}
    counted = 0 if found is None else found.counted
    return [
        _class(each),
        "/".join(promised),
        f"{each.target * 100:g}%",
        f"{counted:,}",
        "-" if found is None else share(found.good, counted),
        *("-" if (rate := rates[name]) is None else f"{rate:.1f}" for name in ("1h", "6h", "3d")),
        _budget(each),
    ]


def _budget(each: ObjectiveStanding) -> str:
    """The rest of an error budget, or how many times it is spent; "-" if so few requests allow no bad one."""
    counted = each.windows[-1].counted
    if each.budget_left is None or counted * (1 - each.target) < 1:
        return "-"
    return f"{each.budget_left:.0%}" if each.budget_left >= 0 else f"{1 - each.budget_left:.1f}x spent"


def _over_share(one: GoodputTotals, *, of_all: bool) -> str:
    """A line on shed requests. of_all: the totals are the whole deployment's, which do not count such requests."""
    shed = f"{one.over_share:,} requests shed while their organization requested more than its share"
    if of_all:
        return f"{one.tier} {one.length}: not counted are {shed};\n  `{command('diagnose')}` names the organizations"
    return f"{one.tier} {one.length}: of the counted requests that were not good,\n  {shed}"


def _pool(each: PoolCost) -> list[str]:
    from slipstream.money import amount

    amounts = (each.amount_micro, each.per_million_good_tokens_micro)
    cost, per_million = ("-" if micro is None else amount(micro) for micro in amounts)
    priced = f"{each.priced_replica_hours:,.2f}", cost, f"{each.priced_good_tokens:,}"
    return [each.pool, f"{each.replica_hours:,.2f}", f"{each.good_tokens:,}", *priced, per_million]


def share(part: int, whole: int) -> str:
    """A share such as `99.12%`, rounded down: 100% means every one."""
    return "-" if not whole else f"{part * 10_000 // whole / 100:.2f}%"
