"""Ninety days of a deployment, made inside PostgreSQL: a large organization and a few small ones, their ledger, the
requests of the days that traces are kept for, prompts' samples, completions' events, and the product's own roll-ups of
all of them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks.admin_ledger import drop_indices
from control.billing.rollup import roll_up
from control.billing.verification import verify
from control.completions.rollup import roll_up as roll_up_completions
from control.prefixes.rollup import roll_up as roll_up_prefixes
from control.slo.adoption import adopt
from control.slo.objectives import SloConfig
from control.slo.rollup import roll_up as roll_up_slo

DAYS = 90
TRACE_DAYS, SAMPLE_DAYS = 30, 7
"""How long the product keeps traces and prompts' samples by default."""
OTHERS, PROJECTS_OF_OTHERS = 4, 5
"""Small organizations, which together have a tenth of the requests."""
PARTITION = "SELECT gateway.ensure_usage_day(($1::timestamptz AT TIME ZONE 'UTC')::date)"
TENANTS = """
WITH made AS (INSERT INTO gateway.organizations (name) SELECT 'small ' || n FROM generate_series(1, $3::int) n
              RETURNING id)
INSERT INTO gateway.projects (organization_id, name, created_at)
SELECT $1, 'project ' || lpad(n::text, 4, '0'), now() - n * interval '1 minute' FROM generate_series(1, $2::int) n
UNION ALL SELECT id, 'project ' || n, now() - interval '90 days' FROM made, generate_series(1, $4::int) n
"""
KEYS = """
INSERT INTO gateway.api_keys (project_id, name, hash, display, created_at, last_used_at)
SELECT id, (ARRAY['production', 'staging', 'ci'])[n], sha256((id::text || n)::bytea), 'sk-slip-…',
       now() - interval '90 days' + n * interval '1 minute', now()
  FROM gateway.projects, generate_series(1, 3) n
"""
PRICES = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('wide', '2020-01-01', 400000, 40000, 400000, 1600000), ('narrow', '2020-01-01', 100000, 10000, 100000, 300000)
"""
AUDIT = """
INSERT INTO gateway.audit_log (actor_kind, actor_name, organization_id, action, subject_kind, subject_id, after)
SELECT 'command', 'bench', organization_id, 'project.create', 'project', id::text, jsonb_build_object('name', name)
  FROM gateway.projects
"""
PEOPLE = """
CREATE TABLE public.people AS
SELECT row_number() OVER (PARTITION BY organization_id = $1 ORDER BY projects.id) - 1 AS number,
       organization_id = $1 AS large, organization_id, projects.id,
       (SELECT array_agg(api_keys.id ORDER BY created_at) FROM gateway.api_keys WHERE project_id = projects.id) AS keys
  FROM gateway.projects
"""
# A few projects and one key of each project send most requests, more by day than by night. Ids begin with their time. A
# hundredth of the requests failed and is not billed.
EVENTS = """
INSERT INTO gateway.usage_events (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, pool,
       replica_id, driver, stream, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish,
       billed, price_version, amount_micro, status, error_code, phases_ms, requested_at, opened_at, closed_at,
       recorded_at, gateway_id)
SELECT 'req_' || lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || md5(n::text)::varchar(24), 0,
       whose.organization_id, whose.id, whose.keys[CASE WHEN r2 < 0.8 THEN 1 WHEN r2 < 0.95 THEN 2 ELSE 3 END],
       model, tier, CASE WHEN chat THEN 'chat' ELSE 'completions' END, 'one', 'one-0', 'sglang', true, prompt, cached,
       completion, 0, 'exact', 'complete', billed, CASE WHEN billed THEN version END,
       CASE WHEN billed THEN div((prompt - cached)::numeric * input_micro + cached::numeric * cached_input_micro
                                 + completion::numeric * output_micro + 500000, 1000000)::bigint ELSE 0 END,
       CASE WHEN billed THEN 200 ELSE 502 END, CASE WHEN billed THEN NULL ELSE 'engine_failed' END,
       '{"auth": 0.1, "limit": 0.4, "route": 0.6, "queue": 3, "engine": 90, "first_token": 100, "stream": 800}',
       at, at, closed, closed, 'gateway-1'
  FROM (SELECT n, $2::timestamptz + (f - 0.12 * sin(2 * pi() * f)) * $3::interval AS at, r1, r2, large, chat,
               CASE WHEN chat THEN 'wide' ELSE 'narrow' END AS model,
               CASE WHEN chat THEN 'chat' ELSE 'autocomplete' END AS tier,
               CASE WHEN chat THEN (200 + 20000 * r3 * r3 * r3)::int ELSE (200 + 2000 * r3)::int END AS prompt,
               CASE WHEN chat THEN (40 + 700 * r4 * r4)::int ELSE (4 + 50 * r4)::int END AS completion,
               r4 >= 0.01 AS billed, (CASE WHEN r2 * 7 - floor(r2 * 7) < 0.5 THEN 0.6 ELSE 0 END) AS hit
          FROM (SELECT n, (n - $4)::float8 / ($5 - $4 + 1) AS f, random() AS r1, random() AS r2, random() AS r3,
                       random() AS r4, random() < 0.9 AS large, random() < 0.4 AS chat
                  FROM generate_series($4::bigint, $5::bigint) n OFFSET 0) AS drawn) AS made
 CROSS JOIN LATERAL (SELECT (prompt * hit)::int AS cached, at + interval '1 second' AS closed) AS times
  JOIN public.people AS whose
    ON whose.large = made.large AND whose.number = CASE WHEN made.large THEN floor($1 * power(r1, 2.5))
                                                        ELSE floor(r1 * $6) END
  JOIN gateway.prices USING (model)
"""
# In addition to the admitted requests, one in fifty is refused by a limit; the ledger never has it.
TRACES = """
INSERT INTO gateway.request_traces (request_id, organization_id, project_id, key_id, endpoint, model, tier, status,
       error_code, total_ms, phases_ms, recorded_at, pool, replica_id, canary, stream, attempts, prompt_tokens,
       cached_tokens, completion_tokens, ttft_ms, tpot_ms, itl_max_ms, gaps_over_100ms, client_stall_ms,
       engine_queue_ms, engine_prefill_ms, retractions, service_class, client, language, characters, rule, reason)
SELECT CASE WHEN refused THEN left(request_id, 16) || md5(request_id)::varchar(24) ELSE request_id END, organization_id,
       project_id, key_id, endpoint, model, tier, CASE WHEN refused THEN 429 ELSE status END,
       CASE WHEN refused THEN 'rate_limit_exceeded' ELSE error_code END,
       CASE WHEN refused THEN 2 ELSE ttft + completion_tokens * 10 END, phases_ms, closed_at,
       CASE WHEN NOT refused THEN pool END, CASE WHEN NOT refused THEN replica_id END,
       CASE WHEN NOT refused THEN false END, true, CASE WHEN refused THEN 0 ELSE 1 END,
       CASE WHEN NOT refused THEN prompt_tokens END, CASE WHEN NOT refused THEN cached_tokens END,
       CASE WHEN NOT refused THEN completion_tokens END, CASE WHEN served THEN ttft END,
       CASE WHEN served THEN 8 + 10 * spread END, CASE WHEN served THEN 20 + 100 * spread * spread END,
       CASE WHEN served THEN 0 END, CASE WHEN served THEN 0 END, CASE WHEN served THEN 3 END,
       CASE WHEN served THEN ttft / 2 END, CASE WHEN served THEN 0 END, 'standard',
       CASE WHEN tier = 'autocomplete' THEN (ARRAY['vscode', 'jetbrains', 'neovim'])[1 + (spread * 2.9)::int % 3] END,
       CASE WHEN tier = 'autocomplete'
            THEN (ARRAY['python', 'go', 'rust', 'typescript'])[1 + (spread * 39)::int % 4] END,
       CASE WHEN tier = 'autocomplete' AND NOT refused THEN completion_tokens * 3 END,
       CASE WHEN refused THEN '{"level": "key", "counter": "requests"}'::jsonb END,
       CASE WHEN refused THEN 'requests per minute of the key' END
  FROM gateway.usage_events
 CROSS JOIN LATERAL (SELECT ('x' || right(request_id, 6))::bit(24)::int / 16777216.0::float8 AS spread) AS drawn
 CROSS JOIN LATERAL (SELECT 40 + prompt_tokens * 0.05 + 200 * spread * spread AS ttft) AS first
 CROSS JOIN LATERAL (VALUES (false), (true)) AS kind (refused)
 CROSS JOIN LATERAL (SELECT status = 200 AND NOT refused AS served) AS answered
 WHERE request_id >= $1 AND (NOT refused OR spread < 0.02)
"""
COMPLETIONS = """
INSERT INTO gateway.completion_events (request_id, project_id, choice_index, view_id, type, organization_id, characters)
SELECT request_id, project_id, 0, '', kind, organization_id, CASE WHEN kind = 'select' THEN completion_tokens * 3 END
  FROM gateway.request_traces CROSS JOIN LATERAL (VALUES ('view', 0.6), ('select', 0.2)) AS made (kind, share)
 WHERE tier = 'autocomplete' AND status = 200 AND ('x' || right(request_id, 4))::bit(16)::int < share * 65536
"""
# An organization has no more templates than a gateway tells apart (gateway/prefixes/sketch.py).
SAMPLES = """
INSERT INTO gateway.prefix_samples (request_id, organization_id, project_id, model, tier, endpoint, template,
       session_id, turn, prompt_tokens, reusable_tokens, cause, blocks, recorded_at)
SELECT request_id, organization_id, project_id, model, tier, endpoint,
       'template-' || (hashtext(project_id::text) & 63), request_id, 1,
       prompt_tokens, prompt_tokens / 2,
       (ARRAY['first', 'whole', 'too_short', 'continued', 'new_text'])[1 + prompt_tokens % 5],
       ARRAY[prompt_tokens]::bigint[], recorded_at
  FROM gateway.request_traces WHERE request_id >= $1 AND status = 200
"""


async def fill(url: str, rows: int, projects: int) -> UUID:
    """Fill an empty, migrated database; returns the large organization's id. Verified by the product's own check."""
    began_s = time.perf_counter()

    def progress(what: str) -> None:
        print(f"{time.perf_counter() - began_s:7.0f} s  {what}", flush=True)

    connection = await asyncpg.connect(url, command_timeout=None)
    try:
        await connection.execute("SET search_path TO public")
        await connection.execute("SET maintenance_work_mem = '512MB'; SET work_mem = '128MB'")
        organization: UUID = await connection.fetchval(
            "INSERT INTO gateway.organizations (name) VALUES ('large') RETURNING id"
        )
        await connection.execute(TENANTS, organization, projects, OTHERS, PROJECTS_OF_OTHERS)
        for statement in (KEYS, PRICES, AUDIT):
            await connection.execute(statement)
        await connection.execute(PEOPLE.replace("$1", f"'{organization}'::uuid"))
        await adopt(connection, SloConfig().objectives)
        await _events(connection, rows, projects)
        progress(f"{rows:,} rows of the ledger")
        await connection.execute(TRACES, _first(TRACE_DAYS))
        progress(f"{await connection.fetchval('SELECT count(*) FROM gateway.request_traces'):,} traces")
        await connection.execute(COMPLETIONS)
        await connection.execute(SAMPLES, _first(SAMPLE_DAYS))
        await connection.execute("VACUUM ANALYZE")
        progress("completions' events, prompts' samples, statistics")
    finally:
        await connection.close()
    written = await asyncio.to_thread(roll_up, url)
    progress(f"roll-up of usage: {written:,} totals of hours")
    minutes = await asyncio.to_thread(roll_up_slo, url, trace_retention_days=TRACE_DAYS)
    progress(f"roll-up of objectives: {minutes:,} minutes")
    await asyncio.to_thread(roll_up_prefixes, url, sample_retention_days=SAMPLE_DAYS)
    hours = await asyncio.to_thread(roll_up_completions, url, trace_retention_days=TRACE_DAYS)
    progress(f"roll-up of prompts' samples, and of completions: {hours:,} hours")
    today = datetime.now(UTC).date()
    found = await asyncio.to_thread(verify, url, today - timedelta(days=1), today + timedelta(days=1))
    assert found.right, found
    connection = await asyncpg.connect(url, command_timeout=None)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
    progress(f"verified {found.rows:,} rows; statistics")
    return organization


async def _events(connection: asyncpg.Connection[Any], rows: int, projects: int) -> None:
    """Insert the ledger a day at a time, then build the indices."""
    now = datetime.now(UTC) - timedelta(minutes=2)
    begin = now - timedelta(days=DAYS)
    await connection.execute("SELECT setseed(0.5)")
    indices = await drop_indices(connection)
    start, first = begin, 0
    while start < now:
        end = min(now, (start + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0))
        past = round(rows * ((end - begin) / (now - begin)))
        await connection.execute(PARTITION, start)
        others = OTHERS * PROJECTS_OF_OTHERS
        if past > first:
            await connection.execute(EVENTS, float(projects), start, end - start, first, past - 1, float(others))
        start, first = end, past
    for index in indices:
        await connection.execute(index)


def _first(days: int) -> str:
    at = datetime.now(UTC) - timedelta(days=days)
    return f"req_{int(at.timestamp() * 1000):012x}"
