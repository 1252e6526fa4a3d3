"""A ledger of millions of rows for benchmarks, made inside PostgreSQL: 30 days, all projects, refused requests too."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg

from control.billing.rollup import roll_up

DAYS = 30
MIDNIGHT = "SELECT date_trunc('day', now(), 'UTC') - make_interval(days => $1)"
PARTITION = "SELECT gateway.ensure_usage_day(($1::timestamptz AT TIME ZONE 'UTC')::date)"
TRACES_SHARE = 5
"""Rows of the ledger for each trace."""

TENANTS = """
INSERT INTO gateway.projects (organization_id, name, created_at)
SELECT $1, 'project ' || n, now() - n * interval '1 minute' FROM generate_series(1, $2::int) n
"""
KEYS = """
INSERT INTO gateway.api_keys (project_id, name, hash, display, created_at)
SELECT id, 'key ' || n, sha256((id::text || n)::bytea), 'sk-slip-…', now() - n * interval '1 minute'
  FROM gateway.projects, generate_series(1, 3) n
"""
# Days before today's, so that every row is in the past; ids begin with their time, as real ones do.
EVENTS = """
INSERT INTO gateway.usage_events (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, pool,
       replica_id, stream, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed,
       status, phases_ms, requested_at, opened_at, closed_at, recorded_at, gateway_id)
SELECT 'req_' || lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || lpad(to_hex(n), 24, '0'),
       0, $1, project.id, project.key_id, 'slipstream-chat', 'chat', 'chat', 'chat', 'chat-1', true,
       100 + n % 900, n % 100, 10 + n % 200, 0, 'exact', 'complete', true, 200, '{"auth": 0.1, "decode": 400}',
       at, at, at + interval '1 second', at, 'gateway-1'
  FROM generate_series($2::bigint, $3::bigint) n
 CROSS JOIN LATERAL (SELECT $4::timestamptz + ((n - $2) * 86399.0 / ($3 - $2 + 1)) * interval '1 second' AS at) moment
  JOIN people project ON project.number = n % $5
"""
TRACES = """
INSERT INTO gateway.request_traces (request_id, organization_id, project_id, key_id, endpoint, model, tier, status,
       error_code, total_ms, phases_ms, recorded_at)
SELECT request_id, organization_id, project_id, key_id, endpoint, model, tier,
       CASE WHEN prompt_tokens % 50 = 0 THEN 429 ELSE 200 END,
       CASE WHEN prompt_tokens % 50 = 0 THEN 'rate_limit_exceeded' END, 400, phases_ms, closed_at
  FROM gateway.usage_events WHERE prompt_tokens % $1 = 0
"""
AUDIT = """
INSERT INTO gateway.audit_log (actor_kind, actor_name, organization_id, action, subject_kind, subject_id, after)
SELECT 'command', 'bench', $1, 'project.create', 'project', id::text, jsonb_build_object('name', name)
  FROM gateway.projects
"""


async def fill(url: str, rows: int, projects: int) -> UUID:
    """Fill an empty, migrated database; returns the organization that everything belongs to."""
    connection = await asyncpg.connect(url, command_timeout=None)
    try:
        organization: UUID = await connection.fetchval(
            "INSERT INTO gateway.organizations (name) VALUES ('bench') RETURNING id"
        )
        await connection.execute(TENANTS, organization, projects)
        await connection.execute(KEYS)
        await connection.execute(AUDIT, organization)
        await connection.execute(
            "CREATE TABLE public.people AS SELECT row_number() OVER (ORDER BY projects.id) - 1 AS number, projects.id,"
            " (SELECT id FROM gateway.api_keys WHERE project_id = projects.id LIMIT 1) AS key_id FROM gateway.projects"
        )
        await connection.execute("SET search_path TO public")
        indices = await drop_indices(connection)
        per_day = rows // DAYS
        for day in range(DAYS):
            start = await connection.fetchval(MIDNIGHT, day + 1)
            await connection.execute(PARTITION, start)
            first = day * per_day
            await connection.execute(EVENTS, organization, first, first + per_day - 1, start, projects)
        for index in indices:
            await connection.execute(index)
        await connection.execute(TRACES, TRACES_SHARE)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
    await asyncio.to_thread(roll_up, url)
    return organization


async def drop_indices(connection: asyncpg.Connection[Any]) -> list[str]:
    """Drop the ledger's indices that are not constraints; returns the statements that recreate them."""
    rows = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'gateway' AND tablename = 'usage_events'"
        " AND indexname NOT LIKE '%pkey'"
    )
    for row in rows:
        await connection.execute(f"DROP INDEX gateway.{row['indexname']}")
    return [row["indexdef"].replace(" ON ONLY ", " ON ") for row in rows]
