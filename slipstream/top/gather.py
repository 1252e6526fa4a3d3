"""Gathers a snapshot from the database and the router."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import ColumnElement, Double, Select, bindparam, func, select
from sqlalchemy.sql.expression import literal_column

from contracts.desired_state import Pool
from contracts.errors import SlipstreamError
from control.slo.cost import GoodTokens, PoolCost, pool_costs, price_micro, rented
from control.slo.judged import counts, judged, newest_version
from gateway.desired import document
from gateway.desired.store import NEWEST
from router.control.client import ControlClient
from slipstream.database import connected
from slipstream.settings import Settings
from slipstream.top.snapshot import Load, PoolNow, Snapshot, TierNow
from storage.rows import fetch
from storage.tables.core import request_traces
from storage.tables.metering import usage_hourly

if TYPE_CHECKING:
    from contracts.proto import control_pb2 as pb

NO_ROUTER = "no router of this deployment has run yet"
_SINCE: ColumnElement[Any] = bindparam("since")
_BILLED = func.coalesce(func.sum(usage_hourly.c.amount_micro), literal_column("0"))


def loads_by(name: str) -> Select[Any]:
    """A load for each value of a column, over the judged requests that ended since `since`."""
    version = newest_version().scalar_subquery()
    each = judged(version, request_traces.c.recorded_at >= _SINCE)

    def percentile(part: str, column: ColumnElement[Any]) -> ColumnElement[float]:
        # An ordered-set aggregate ignores nulls. Offline requests, which wait on purpose, are left out.
        value = func.percentile_cont(literal_column(part)).within_group(column).filter(each.c.is_waited_for)
        return value.cast(Double)

    totals = counts(each)
    totals["counted"] -= totals["over_share"]  # for all organizations, requests beyond a share are not the platform's
    measured = {
        "ttft_p50_ms": percentile("0.5", each.c.ttft_ms),
        "ttft_p99_ms": percentile("0.99", each.c.ttft_ms),
        "tpot_p50_ms": percentile("0.5", each.c.tpot_ms),
        "tpot_p99_ms": percentile("0.99", each.c.tpot_ms),
        "gap_p99_ms": percentile("0.99", each.c.itl_max_ms),
    }
    fields = {**{field: totals[field] for field in Load.__struct_fields__ if field in totals}, **measured}
    key = each.c[name].label("name")
    return select(key, *(value.label(field) for field, value in fields.items())).group_by(each.c[name]).order_by(key)


BY_TIER, BY_POOL = loads_by("tier"), loads_by("pool")


async def gather(settings: Settings, window_s: int, address: str | None = None) -> Snapshot:
    """The current snapshot. address: the router's control service; None for the settings' address.

    Raises ConfigError if the database cannot be reached.
    """
    now = datetime.now(UTC)
    begin = now - timedelta(seconds=window_s)
    fetching = asyncio.create_task(asyncio.to_thread(_fleet, settings, address))
    try:
        async with (
            connected(settings) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            promised = bool(await connection.fetchval("SELECT EXISTS (SELECT FROM gateway.slo_objectives)"))
            tiers = _loads(await fetch(connection, BY_TIER.params(since=begin)))
            loads = _loads(await fetch(connection, BY_POOL.params(since=begin)))
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            [[billed]] = await fetch(connection, select(_BILLED).where(usage_hourly.c.hour >= midnight))
            desired = await _wanted(connection)
    finally:
        fleet = await fetching
    good = {name: GoodTokens(load.good_tokens, load.good_tokens) for name, load in loads.items()}
    # At today's price: the present cost, not the past one.
    costs = {each.pool: each for each in pool_costs(rented([(begin, desired)], begin, now), good)}
    seen = {} if isinstance(fleet, str) else {pool.name: pool for pool in fleet.pools}
    return Snapshot(
        at=now,
        window_s=window_s,
        promised=promised,
        router=fleet if isinstance(fleet, str) else None,
        gateways=None if isinstance(fleet, str) else fleet.gateways,
        tiers=[TierNow(tier=name, load=load) for name, load in tiers.items()],
        pools=_pools(desired, loads, costs, seen),
        currency=settings.currency,
        billed_today_micro=int(billed),
    )


def _fleet(settings: Settings, address: str | None) -> pb.Fleet | str:
    """The fleet as the router sees it, or the reason why it is unknown."""
    if not settings.data.reader_token_file.exists():  # nothing ever ran here, and a query must not create the token
        return NO_ROUTER
    try:
        with ControlClient(address or settings.control_address, settings.reader_token) as control:
            return control.fleet()
    except SlipstreamError as error:
        return error.message


async def _wanted(connection: asyncpg.Connection[Any]) -> tuple[Pool, ...]:
    """The pools of the desired state; none until it is seeded."""
    row = await connection.fetchrow(NEWEST, 0)
    return () if row is None else document.decode(row["version"], row["document"]).pools


def _loads(rows: Sequence[asyncpg.Record]) -> dict[str, Load]:
    return {row["name"]: Load(**{field: row[field] for field in Load.__struct_fields__}) for row in rows}


def _pools(
    desired: Sequence[Pool], loads: Mapping[str, Load], costs: Mapping[str, PoolCost], seen: Mapping[str, pb.Pool]
) -> list[PoolNow]:
    return [_pool(each, loads.get(each.name), costs.get(each.name), seen.get(each.name)) for each in desired]


def _pool(pool: Pool, load: Load | None, cost: PoolCost | None, seen: pb.Pool | None) -> PoolNow:
    hourly_micro = price_micro(pool) * len(pool.replicas)
    known = PoolNow(
        pool=pool.name,
        replicas=len(pool.replicas),
        load=load,
        hourly_micro=hourly_micro or None,
        per_million_good_tokens_micro=None if cost is None else cost.per_million_good_tokens_micro,
    )
    if seen is None:
        return known
    return PoolNow(
        pool=known.pool,
        replicas=known.replicas,
        usable=sum(replica.usable for replica in seen.replicas),
        leases=sum(replica.leases for replica in seen.replicas),
        capacity=sum(replica.max_concurrency for replica in seen.replicas if replica.usable),
        queued=seen.queued,
        load=known.load,
        hourly_micro=known.hourly_micro,
        per_million_good_tokens_micro=known.per_million_good_tokens_micro,
    )
