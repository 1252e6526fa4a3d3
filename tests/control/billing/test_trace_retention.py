from __future__ import annotations

import asyncio

import pytest

from control.billing import trace_retention
from control.billing.trace_retention import forget_traces
from storage.engine import lazy_pool

INSERT = """
INSERT INTO gateway.request_traces (request_id, organization_id, status, total_ms, phases_ms, recorded_at)
SELECT 'r' || day || '-' || n, gen_random_uuid(), 200, 1.0, '{}', now() - day * interval '1 day' + interval '1 hour'
  FROM unnest($1::int[]) AS day, generate_series(1, $2) AS n
"""
INSERT_EVENTS = """
INSERT INTO gateway.completion_events
       (request_id, project_id, choice_index, view_id, type, organization_id, recorded_at)
SELECT 'r' || day || '-' || n, gen_random_uuid(), 0, '', 'view', gen_random_uuid(),
       now() - day * interval '1 day' + interval '1 hour'
  FROM unnest($1::int[]) AS day, generate_series(1, $2) AS n
"""


async def test_old_traces_and_events_are_forgotten_in_small_steps(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_retention, "AT_ONCE", 7)
    async with lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool:
        await pool.execute(INSERT, [1, 30, 31, 32], 10)
        await pool.execute(INSERT_EVENTS, [2, 29, 33], 8)
        assert await asyncio.to_thread(forget_traces, fresh_postgres_url, 30) == 28
        for table, days in (("request_traces", {"r1", "r30"}), ("completion_events", {"r2", "r29"})):
            kept = await pool.fetch(f"SELECT DISTINCT split_part(request_id, '-', 1) AS day FROM gateway.{table}")
            assert {row["day"] for row in kept} == days
        assert await asyncio.to_thread(forget_traces, fresh_postgres_url, 30) == 0
