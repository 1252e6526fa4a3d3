"""What `slipstream top` shows equals the rows of the requests that ended; without any it says what to do."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from contracts.desired_state import Pool, Replica
from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from gateway.desired import document
from slipstream.top.snapshot import Load, Snapshot
from tests.control.slo.trace_rows import Trace, naive, trace, write
from tests.slipstream.shell import Shell

BY_CLASS = {(each.tier, each.length): each for each in OBJECTIVES}
NO_ROUTER = ("--address", "127.0.0.1:1")
POOLS = (
    Pool("one", "openai", (Replica("r1", "http://one:1"), Replica("r2", "http://two:1")), price_per_replica_hour=1.25),
    Pool("idle", "openai", (Replica("r3", "http://three:1"),)),
)
PERCENTILES = {
    "ttft_p50_ms": ("ttft_ms", 0.5),
    "ttft_p99_ms": ("ttft_ms", 0.99),
    "tpot_p50_ms": ("tpot_ms", 0.5),
    "tpot_p99_ms": ("tpot_ms", 0.99),
    "gap_p99_ms": ("itl_max_ms", 0.99),
}


def percentile(values: list[float], part: float) -> float | None:
    """Between two values, in proportion."""
    if not values:
        return None
    at = (len(values) - 1) * part
    below, above = sorted(values)[int(at)], sorted(values)[min(int(at) + 1, len(values) - 1)]
    return below + (above - below) * (at - int(at))


def load_of(rows: list[Trace]) -> dict[str, Any]:
    """The same as `Load`, one request after the other."""
    totals: dict[str, Any] = defaultdict(int)
    for of in naive(rows, BY_CLASS).values():
        for name, number in of.items():
            totals[name] += number
    totals["counted"] -= totals["over_share"]
    for name, (column, part) in PERCENTILES.items():
        waited_for = (row for row in rows if row.service_class != "offline")
        values = [value for row in waited_for if (value := getattr(row, column)) is not None]
        totals[name] = percentile(values, part)
    return {name: totals[name] for name in Load.__struct_fields__}


async def test_a_deployment_that_has_just_started_says_what_to_do(shell: Shell) -> None:
    told = await shell.must("top", "--once", *NO_ROUTER)
    assert "router: The router at 127.0.0.1:1 " in told
    assert "; `slipstream status" in told
    assert "no objectives are in force: a worker sets them" in told
    assert "No request ended in this period. `slipstream up` printed one to try." in told
    assert "There are no pools yet" in told
    assert "billed today 0.00 USD" in told


async def test_every_number_equals_the_rows(shell: Shell, fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await adopt(connection, OBJECTIVES)
    await connection.execute("INSERT INTO gateway.desired_states VALUES (1, $1)", document.encode((), POOLS))
    await connection.execute(  # yesterday's, and one that is not over today, even if midnight comes in between
        "INSERT INTO gateway.usage_hourly SELECT date_trunc('hour', now() + days * interval '1 day', 'UTC'), $1, $1,"
        " $1, 'm', 'chat', 1, 0, 0, 0, 0, 0, 2500000 FROM unnest('{-1,1}'::int[]) AS days",
        UUID(int=1),
    )
    choose, now = random.Random(5), datetime.now(UTC)
    old, rows = ([trace(choose, now - timedelta(hours=1)) for _ in range(count)] for count in (50, 400))
    await write(connection, old)
    await connection.execute("UPDATE gateway.request_traces SET recorded_at = now() - interval '2 hours'")
    await write(connection, rows)  # long requests that end now
    await connection.close()
    shot = msgspec.json.decode(await shell.must("top", "--json", "--window", "3600", *NO_ROUTER), type=Snapshot)
    assert {each.tier for each in shot.tiers} == {"chat", "autocomplete"}
    for tier in shot.tiers:
        expected = load_of([row for row in rows if row.tier == tier.tier])
        assert msgspec.structs.asdict(tier.load) == pytest.approx(expected)
    one, idle = shot.pools
    assert one.load is not None
    assert msgspec.structs.asdict(one.load) == pytest.approx(
        load_of([row for row in rows if row.pool == "one" and row.tier])
    )
    assert (one.replicas, one.hourly_micro, one.usable) == (2, 2_500_000, None)
    assert one.per_million_good_tokens_micro == pytest.approx(2_500_000 * 1e6 / one.load.good_tokens, rel=1e-6)
    assert (idle.pool, idle.load, idle.hourly_micro, idle.per_million_good_tokens_micro) == ("idle", None, None, None)
    assert shot.billed_today_micro == 2_500_000
    assert shot.promised
    told = await shell.must("top", "--window", "3600", *NO_ROUTER)
    [line] = [line.split() for line in told.splitlines() if line.lstrip().startswith("chat ")]
    [chat] = [each.load for each in shot.tiers if each.tier == "chat"]
    assert line[1] == f"{chat.requests / 3_600:,.1f}"
    assert line[2] == f"{chat.good * 1_000 // chat.counted / 10:.1f}%"
    assert "2.50 USD" in told


async def test_a_window_that_cannot_be_is_refused(shell: Shell) -> None:
    code, told = await shell.run("top", "--window", "0")
    assert code == 2
    assert "1<=x<=3600" in told
