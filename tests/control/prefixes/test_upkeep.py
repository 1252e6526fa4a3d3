"""Sums and drops through a real PostgreSQL, from requests as gateways observe them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import arrived_at_s
from control.prefixes.drops import SHARE_DROPPED
from control.prefixes.metrics import PrefixMetrics
from control.prefixes.rollup import forget, roll_up
from control.webhooks.outbox import EventType
from gateway.prefixes.difference import Cause
from storage.calendar import hour_of
from storage.engine import lazy_pool
from tests.gateway.prefixes.prompts import ACME, OTHER
from tests.gateway.prefixes.traffic import CLOCK, NOW, Traffic


@pytest.fixture
async def traffic(fresh_postgres_url: str) -> AsyncIterator[Traffic]:
    pool = await lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5)
    yield Traffic(pool, fresh_postgres_url)
    pool.terminate()


async def test_a_drop_by_half_is_told_once_with_its_cause_and_is_over_when_it_is_mended(traffic: Traffic) -> None:
    await traffic.usual_hours()
    await traffic.usual_hours(OTHER)
    assert traffic.upkeep() == []
    await traffic.now(CLOCK)
    await traffic.now(["You are a clerk."] * 20, organization_id=OTHER)
    (drop,) = traffic.upkeep()
    assert (str(drop.organization_id), drop.cause, drop.part) == (ACME, Cause.TIMESTAMP.value, "system")
    assert drop.share < drop.usual_share / 2
    assert drop.differing_token == 0
    ((kind, data),) = await traffic.events()
    assert kind == SHARE_DROPPED == EventType.PREFIX_SHARE_DROPPED.value
    assert (data["cause"], data["template"], data["share"]) == (drop.cause, drop.template, drop.share)
    assert traffic.upkeep() == []  # told
    later = NOW + timedelta(minutes=30)
    await traffic.now(["You are a clerk."] * 20, at=later)
    assert traffic.upkeep(later) == []
    ended = await traffic.pool.fetchval("SELECT ended_at FROM gateway.prefix_drops")
    assert ended == later
    assert len(await traffic.events()) == 1
    again = NOW + timedelta(hours=1)
    await traffic.now([f"You are a clerk. It is 11:1{n % 10}:{n:02d}." for n in range(20)], at=again)
    assert [each.cause for each in traffic.upkeep(again)] == [Cause.TIMESTAMP.value]
    assert len(await traffic.events()) == 2


async def test_few_requests_are_no_drop(traffic: Traffic) -> None:
    await traffic.usual_hours()
    await traffic.now(CLOCK[:9])
    assert traffic.upkeep() == []


async def test_sums_are_those_of_the_samples_however_often_they_are_made(traffic: Traffic) -> None:
    await traffic.usual_hours()
    await traffic.now(CLOCK)
    for _ in range(2):
        assert roll_up(traffic.url, sample_retention_days=7, now=NOW) >= 1
    wanted: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in await traffic.pool.fetch("SELECT * FROM gateway.prefix_samples"):
        at_s = arrived_at_s(row["request_id"])
        assert at_s is not None
        hour = datetime.fromtimestamp(at_s, UTC).replace(minute=0, second=0, microsecond=0)
        key = (
            row["organization_id"],
            hour,
            row["model"],
            row["endpoint"],
            row["template"],
            row["cause"],
            row["part"] or "",
        )
        wanted[key].update(requests=1, prompt_tokens=row["prompt_tokens"], reusable_tokens=row["reusable_tokens"])
    found = await traffic.pool.fetch("SELECT * FROM gateway.prefix_shares")
    assert {
        tuple(row[name] for name in ("organization_id", "hour", "model", "endpoint", "template", "cause", "part")): {
            name: row[name] for name in ("requests", "prompt_tokens", "reusable_tokens")
        }
        for row in found
    } == {key: {"reusable_tokens": 0, **sums} for key, sums in wanted.items()}


async def test_a_worker_that_was_away_makes_up_for_all_hours(traffic: Traffic) -> None:
    await traffic.usual_hours()
    await traffic.pool.execute("UPDATE gateway.prefix_samples SET recorded_at = $1", NOW - timedelta(hours=5))
    assert roll_up(traffic.url, sample_retention_days=7, now=NOW - timedelta(hours=4)) == 2
    assert roll_up(traffic.url, sample_retention_days=7, now=NOW) == 5
    assert roll_up(traffic.url, sample_retention_days=7, now=NOW) >= 1
    assert await traffic.pool.fetchval("SELECT sum(requests) FROM gateway.prefix_shares") == 100


async def test_samples_that_come_late_are_added_to_their_hours(traffic: Traffic) -> None:
    await traffic.usual_hours()
    await traffic.now(CLOCK)
    roll_up(traffic.url, sample_retention_days=7, now=NOW)
    await traffic.pool.execute("UPDATE gateway.prefix_samples SET recorded_at = $1", NOW - timedelta(hours=1))
    assert roll_up(traffic.url, sample_retention_days=7, now=NOW) == 1  # nothing came since
    late = NOW - timedelta(hours=3)
    traffic.ask(late)
    traffic.ask(NOW - timedelta(days=8))
    await traffic.flush()
    assert roll_up(traffic.url, sample_retention_days=7, now=NOW) == 2  # its hour, and this one
    sums = "SELECT sum(requests)::int FROM gateway.prefix_shares"
    assert await traffic.pool.fetchval(f"{sums} WHERE hour = $1", hour_of(late)) == 21
    assert await traffic.pool.fetchval(sums) == len(CLOCK) + 101


async def test_what_is_over_its_retention_is_forgotten(traffic: Traffic) -> None:
    await traffic.usual_hours()
    roll_up(traffic.url, sample_retention_days=7, now=NOW)
    await traffic.pool.execute(
        "UPDATE gateway.prefix_samples SET recorded_at = now() - interval '8 days' WHERE turn = 1"
    )
    await traffic.pool.execute("UPDATE gateway.prefix_shares SET hour = hour - interval '500 days'")
    shares = await traffic.pool.fetchval("SELECT count(*) FROM gateway.prefix_shares")
    assert forget(traffic.url, sample_retention_days=7, share_retention_days=400) == 100 + shares
    assert forget(traffic.url, sample_retention_days=7, share_retention_days=400) == 0


async def test_drops_are_counted_by_cause(traffic: Traffic) -> None:
    registry = CollectorRegistry()
    metrics = PrefixMetrics(registry)
    await traffic.usual_hours()
    await traffic.now(CLOCK)
    metrics.began(traffic.upkeep())
    count = registry.get_sample_value
    assert count("slipstream_prefix_share_drops_total", {"cause": "timestamp"}) == 1
    assert count("slipstream_prefix_share_drops_total", {"cause": "date"}) == 0
