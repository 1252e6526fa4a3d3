"""Hourly totals of what is billed, recomputed from the ledger. Called by the worker's scheduled task.

Whole hours are replaced, never added to, so running it twice, late, or from two workers at once changes nothing. Rows
may reach the ledger long after their hour (a gateway was away): every hour that has news since the last run is redone.
"""

from __future__ import annotations

import psycopg

LOCK_ID = 0x726F6C6C
"""Key of the advisory lock, the bytes of `roll`."""
OVERLAP = "10 minutes"
"""A row's recorded_at is when its transaction began, so it may appear this much after a later one was already seen."""

ROLL_UP = f"""
WITH last AS (
    SELECT coalesce(max(computed_at), '-infinity') - interval '{OVERLAP}' AS seen_until FROM gateway.usage_hourly
), touched AS (
    SELECT DISTINCT date_trunc('hour', closed_at, 'UTC') AS hour
      FROM gateway.usage_events, last
     WHERE recorded_at >= seen_until
)
INSERT INTO gateway.usage_hourly AS hourly
       (hour, organization_id, project_id, key_id, model, tier,
        requests, prompt_tokens, cached_tokens, completion_tokens, computed_at)
SELECT hour, organization_id, project_id, key_id, model, tier,
       count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), now()
  FROM touched JOIN gateway.usage_events ON closed_at >= hour AND closed_at < hour + interval '1 hour'
 WHERE billed
 GROUP BY hour, organization_id, project_id, key_id, model, tier
    ON CONFLICT (hour, organization_id, project_id, key_id, model, tier) DO UPDATE
   SET requests = excluded.requests, prompt_tokens = excluded.prompt_tokens, cached_tokens = excluded.cached_tokens,
       completion_tokens = excluded.completion_tokens, computed_at = excluded.computed_at
"""  # noqa: S608  built from a constant of this file


def roll_up(database_url: str, *, connect_timeout_s: int = 10) -> int:
    """Bring `gateway.usage_hourly` up to date; returns the number of rows written.

    Raises psycopg.Error when the database is away; nothing is written then, and the next run makes up for it.
    """
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s) as connection:
        # Taken in a statement of its own: the next one then sees what the previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        return connection.execute(ROLL_UP).rowcount
