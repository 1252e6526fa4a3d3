"""A tenant's weeks in the ledger, and what its pages must say of it: added up here from single rows, with plain SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

ROWS, CLOSE = 1_400, 900
"""One each quarter of an hour, and of those behind the first 900 one each three hours; a seventh of them not billed:
ten weeks, so that whole ones that are over are met on whichever day it is."""
DAYS_BACK = 75
PROJECTS, KEYS = ("backend", "editor"), ("staging", "production")
PRICES = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('counted-wide', '2020-01-01', 2500000, 250000, 2500000, 10000000),
       ('counted-narrow', '2020-01-01', 70001, 7000, 70001, 310003)
"""
DAYS = "SELECT gateway.ensure_usage_day((now() AT TIME ZONE 'UTC')::date - n) FROM generate_series(0, $1) n"
# Amounts as price and count say, half up, worked out in PostgreSQL's decimals.
EVENTS = """
INSERT INTO gateway.usage_events (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint,
       stream, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed,
       price_version, amount_micro, status, phases_ms, requested_at, opened_at, closed_at, gateway_id)
SELECT 'req_' || lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || left(md5(n::text), 24), 0, $1,
       projects[1 + n % 2], keys[1 + n % 4], model, tier, 'chat', true, prompt, cached, completion, 0, 'exact',
       'complete', billed, CASE WHEN billed THEN version END,
       CASE WHEN billed THEN floor(((prompt - cached)::numeric * input_micro + cached::numeric * cached_input_micro
                                    + completion::numeric * output_micro) / 1000000 + 0.5)::bigint ELSE 0 END,
       200, '{}', at, at, at + interval '1 second', 'of-the-test'
  FROM (SELECT n, now() - interval '1 second' - least(n - 1, $5) * interval '15 minutes'
                     - greatest(n - 1 - $5, 0) * interval '3 hours' AS at,
               11 + n * 7919 % 5003 AS prompt, n * 31 % 11 AS cached,
               1 + n * 104729 % 701 AS completion, n % 7 > 0 AS billed,
               CASE WHEN n % 3 = 0 THEN 'counted-wide' ELSE 'counted-narrow' END AS model,
               CASE WHEN n % 3 = 0 THEN 'chat' ELSE 'autocomplete' END AS tier
          FROM generate_series(1, $4::int) n) AS made
  JOIN gateway.prices USING (model)
 CROSS JOIN (SELECT $2::uuid[] AS projects, $3::uuid[] AS keys) AS whose
"""
SUMS = """
SELECT {group} AS name, count(*) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
       sum(completion_tokens) AS completion_tokens, sum(amount_micro)::bigint AS amount_micro
  FROM gateway.usage_events
  LEFT JOIN gateway.projects ON projects.id = usage_events.project_id
  LEFT JOIN gateway.api_keys ON api_keys.id = usage_events.key_id
 WHERE usage_events.organization_id = $1 AND billed AND requested_at >= $2 AND requested_at < $3
 GROUP BY 1
"""
BY_DAY = """
SELECT date_trunc('day', requested_at, 'UTC') AS day, model, count(*) AS requests FROM gateway.usage_events
 WHERE organization_id = $1 AND billed AND requested_at >= $2 AND requested_at < $3 GROUP BY 1, 2
"""
PREFIX_SAMPLES = """
INSERT INTO gateway.prefix_samples (request_id, organization_id, project_id, model, tier, endpoint, template,
       session_id, turn, prompt_tokens, reusable_tokens, cause, blocks)
SELECT request_id, organization_id, project_id, model, tier, 'chat', 'template-' || md5(model), request_id, 1,
       prompt_tokens, prompt_tokens * (1 + requests.number % 5) / 7,
       (ARRAY['first', 'new_text'])[1 + requests.number % 2], ARRAY[prompt_tokens]::bigint[]
  FROM (SELECT *, row_number() OVER (ORDER BY request_id) AS number FROM gateway.usage_events
         WHERE organization_id = $1 AND requested_at >= now() - interval '5 days') AS requests
"""
PREFIX_SHARES = """
SELECT model, count(*) AS requests, sum(samples.prompt_tokens) AS prompt_tokens,
       sum(reusable_tokens) AS reusable_tokens, sum(cached_tokens) AS cached_tokens
  FROM gateway.prefix_samples AS samples JOIN gateway.usage_events AS events USING (request_id, model)
 WHERE samples.organization_id = $1 GROUP BY 1
"""
BILLED = """
SELECT coalesce(sum(amount_micro), 0)::bigint FROM gateway.usage_events
 WHERE billed AND requested_at >= $1 AND requested_at < $2
"""
APART = """
SELECT count(*) AS windows, count(*) FILTER (WHERE prompt_drift <> 0 OR completion_drift <> 0) AS differ,
       sum(engine_prompt_tokens + engine_completion_tokens) AS counted,
       coalesce(sum(prompt_drift) FILTER (WHERE prompt_drift > 0), 0) AS prompt_plus,
       coalesce(sum(prompt_drift) FILTER (WHERE prompt_drift < 0), 0) AS prompt_minus,
       coalesce(sum(completion_drift) FILTER (WHERE completion_drift > 0), 0) AS completion_plus,
       coalesce(sum(completion_drift) FILTER (WHERE completion_drift < 0), 0) AS completion_minus
  FROM gateway.reconciliations WHERE $1 IN ('', replica_id)
"""
GROUPS = {
    "all": "'all'",
    "project": "projects.name",
    "key": "api_keys.name",
    "model": "model",
    "tier": "tier",
}
"""What the page groups by, in SQL. Names of keys are unique here."""


async def tenant(database: asyncpg.Connection[Any]) -> UUID:
    """A new organization and its weeks; its id."""
    organization: UUID = await database.fetchval(
        "INSERT INTO gateway.organizations (name) VALUES ('counted') RETURNING id"
    )
    projects = [
        await database.fetchval(
            "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2) RETURNING id", organization, name
        )
        for name in PROJECTS
    ]
    keys = []
    for name in KEYS:
        for number, project in enumerate(projects):
            keys.append(
                await database.fetchval(
                    "INSERT INTO gateway.api_keys (project_id, name, hash, display)"
                    " VALUES ($1::uuid, $2::text, sha256(uuid_send($1::uuid) || convert_to($2::text, 'UTF8')),"
                    " 'sk-slip-…') RETURNING id",
                    project,
                    f"{PROJECTS[number]} {name}",
                )
            )
    await database.execute(PRICES)
    await database.execute(DAYS, DAYS_BACK)
    await database.execute(EVENTS, organization, projects, keys, ROWS, CLOSE)
    return organization


async def sums(
    database: asyncpg.Connection[Any], organization: UUID, by: str, start: datetime, end: datetime
) -> dict[str, dict[str, int]]:
    """What was billed of requests that arrived in a period, by group."""
    rows = await database.fetch(SUMS.format(group=GROUPS[by]), organization, start, end)
    return {row["name"]: {name: int(value) for name, value in row.items() if name != "name"} for row in rows}


def short(value: int) -> str:
    """As the console writes counts: below a million in full."""
    if value < 1_000_000:
        return f"{value:,}"
    for size, letter in ((10**9, "B"), (10**6, "M")):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + letter
    raise ValueError(value)


def apart(plus: int, minus: int) -> str:
    """As the console writes what engines counted beyond the ledger and what they did not."""
    told = [f"{sign}{abs(value):,}" for sign, value in (("+", plus), ("−", minus)) if value]
    return " ".join(told) or "0"


def money(micro: int) -> str:
    """As the console writes money: on one line."""
    return f"{amount(micro)}\xa0USD"


def exact_money(micro: int) -> str:
    """As the console writes prices, and amounts on hover: with all digits, two at least."""
    whole, _, part = f"{micro / 1_000_000:,.6f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}\xa0USD"


def cents(micro: int) -> str:
    """As the console's tiles write money: to the cent."""
    if 0 < micro < 10_000:
        return "< 0.01\xa0USD"
    return money(int(micro / 10_000 + 0.5) * 10_000)


def amount(micro: int) -> str:
    """Without its currency."""
    digits = 2 if micro >= 100_000 else 6
    whole, _, part = f"{micro / 1_000_000:.{digits}f}".partition(".")
    return f"{int(whole):,}.{part if digits == 2 else part.rstrip('0').ljust(2, '0')}"


def month_with_rows() -> datetime:
    """The first moment of this month; of the one before in its first hour, when this one has few rows or none."""
    return (datetime.now(UTC) - timedelta(hours=1)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
