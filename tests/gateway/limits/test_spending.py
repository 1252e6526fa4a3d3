"""Sums over a real ledger, and thresholds recorded once and passed on in the same transaction."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from contracts.dated_request_id import mint
from contracts.generation import Tier
from control.tenants.limit_store import put_rule
from control.webhooks.outbox import tell_crossing
from gateway.limits.levels import Level, Limits
from gateway.limits.spending import Crossing, LedgerSpending, Subject
from gateway.limits.store import levels_of_all

NOW_S = 1_795_000_000.0
MONTH_MS = 1_793_491_200_000  # 2026-11-01
ORGANIZATION, PROJECT, OTHER_PROJECT, KEY = (str(uuid4()) for _ in range(4))


async def bill(
    pool: asyncpg.Pool[Any],
    micro: int,
    *,
    at_s: float = NOW_S,
    project: str = PROJECT,
    tier: str = "chat",
    billed: bool = True,
    request_id: str | None = None,
) -> str:
    """A row of the ledger."""
    request_id = request_id or mint(at_s)
    await pool.execute(
        "INSERT INTO gateway.usage_events (request_id, attempt, organization_id, project_id, key_id, model, tier,"
        " endpoint, stream, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed,"
        " price_version, amount_micro, phases_ms, requested_at, opened_at, closed_at, gateway_id)"
        " VALUES ($1, $2, $3, $4, $5, 'm', $6, '/v1/completions', true, 1, 0, 1, 0, 'exact', 'complete', $7, 1, $8,"
        " '{}', to_timestamp($9), to_timestamp($9), to_timestamp($9), '0')",
        *(request_id, 0 if billed else 1, ORGANIZATION, project, KEY, tier, billed, micro if billed else 0, at_s),
    )
    return request_id


async def test_what_is_billed_is_summed_by_level_tier_and_month(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str
) -> None:
    await pool.execute("SELECT gateway.ensure_usage_day('2026-11-18'), gateway.ensure_usage_day('2026-10-31')")
    first = await bill(pool, 100)
    await bill(pool, 0, billed=False, request_id=first)
    await bill(pool, 20, tier="autocomplete")
    await bill(pool, 3, project=OTHER_PROJECT)
    await bill(pool, 1_000, at_s=MONTH_MS / 1_000 - 1)
    spending = LedgerSpending(pool)

    async def spent(level: Level, subject: str, tier: Tier | None = None, without: tuple[str, ...] = ()) -> int:
        return await spending.spent_micro(Subject(level, subject, tier), MONTH_MS, without)

    assert await spent(Level.ORGANIZATION, ORGANIZATION) == 123
    assert await spent(Level.PROJECT, PROJECT) == 120
    assert await spent(Level.KEY, KEY, Tier.AUTOCOMPLETE) == 20
    assert await spent(Level.ORGANIZATION, ORGANIZATION, without=(first,)) == 23
    assert await spent(Level.ORGANIZATION, str(uuid4())) == 0
    assert await spending.now_ms() == pytest.approx(time.time() * 1_000, abs=60_000), "one machine, one clock"


async def test_gateways_join_and_leave(pool: asyncpg.Pool[Any]) -> None:
    spending = LedgerSpending(pool)
    await spending.join("0", "0.a")
    await spending.join("1", "1.a")
    await spending.join("0", "0.b")
    assert await spending.instances() == {"0", "1"}
    await spending.leave("1")
    assert await spending.instances() == {"0"}


async def test_a_threshold_is_recorded_once_and_told_with_it(pool: asyncpg.Pool[Any]) -> None:
    async with pool.acquire() as connection:
        organization_id = await connection.fetchval(
            "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", f"acme {time.time()}"
        )
    spending = LedgerSpending(pool, tell_crossing)
    for spent_micro in (812, 830):
        await spending.crossed(
            Crossing(str(organization_id), "project", PROJECT, None, "2026-11", 80, 1_000, spent_micro)
        )
    events = await pool.fetch("SELECT type, data::text FROM gateway.webhook_events")
    assert [row["type"] for row in events] == ["budget.threshold_reached"]
    assert '"spent_micro": 812' in events[0]["data"]
    await spending.crossed(Crossing(str(organization_id), "project", PROJECT, None, "2026-11", 80, 2_000, 1_600))
    assert await pool.fetchval("SELECT count(*) FROM gateway.webhook_events") == 2  # of the raised budget

    async def fail(connection: object, crossing: Crossing) -> None:
        raise asyncpg.InterfaceError("no outbox")

    other = Crossing(str(organization_id), "project", PROJECT, "chat", "2026-11", 80, 1_000, 812)
    with pytest.raises(asyncpg.InterfaceError):
        await LedgerSpending(pool, fail).crossed(other)
    recorded = await pool.fetch("SELECT tier FROM gateway.budget_crossings")
    assert [row["tier"] for row in recorded] == ["", ""]  # nothing is recorded that was not told


async def test_a_refusal_is_told_once_for_each_limit_and_does_not_stand_for_a_threshold(
    pool: asyncpg.Pool[Any],
) -> None:
    async with pool.acquire() as connection:
        organization_id = await connection.fetchval(
            "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", f"refused {time.time()}"
        )
    spending = LedgerSpending(pool, tell_crossing)
    subject = (str(organization_id), "project", OTHER_PROJECT, None, "2026-11")
    for percent, limit_micro, spent_micro in ((99, 400, 399), (99, 400, 399), (80, 500, 400)):
        await spending.crossed(Crossing(*subject, percent, limit_micro, spent_micro, refused=True))
    await spending.crossed(Crossing(*subject, 100, 500, 500))
    events = await pool.fetch(
        "SELECT type, data->'refused' AS refused, data->'percent' AS percent FROM gateway.webhook_events"
        " WHERE organization_id = $1 ORDER BY created_at",
        organization_id,
    )
    assert [tuple(row) for row in events] == [
        ("budget.exhausted", "true", "99"),
        ("budget.exhausted", "true", "80"),
        ("budget.exhausted", "false", "100"),
    ]


async def test_rules_are_read_with_a_key(pool: asyncpg.Pool[Any]) -> None:
    async with pool.acquire() as connection:
        await put_rule(connection, Level.ORGANIZATION, ORGANIZATION, None, Limits(tokens_per_minute=5))
        await put_rule(connection, Level.PROJECT, UUID(PROJECT), Tier.CHAT, Limits(max_concurrency=2))
        await put_rule(connection, Level.PROJECT, OTHER_PROJECT, None, Limits(max_concurrency=3))
        await put_rule(connection, Level.KEY, KEY, None, Limits(requests_per_minute=4))
        await put_rule(connection, Level.KEY, KEY, None, Limits(requests_per_minute=9))
        [levels] = await levels_of_all(connection, [(ORGANIZATION, PROJECT, KEY)])
        assert [(rule.name, rule.limits) for rule in levels.rules] == [
            (f"organization:{ORGANIZATION}:*", Limits(tokens_per_minute=5)),
            (f"project:{PROJECT}:chat", Limits(max_concurrency=2)),
            (f"key:{KEY}:*", Limits(requests_per_minute=9)),
        ]
        await put_rule(connection, Level.KEY, KEY, None, Limits())
        [levels] = await levels_of_all(connection, [(ORGANIZATION, PROJECT, KEY)])
        assert len(levels.rules) == 2
