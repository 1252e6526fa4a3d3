"""The plain twin of the roll-up and its reading: one statement over the traces and the editors' reports themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from contracts.dated_request_id import first_at

COUNTS = (
    "completions", "empty", "abandoned", "superseded", "shown", "accepted", "dismissed", "characters_offered",
    "characters_kept",
)  # fmt: skip
TOTALS = """
WITH made AS (
    SELECT request_id, project_id, model, status, characters, total_ms,
           coalesce(error_code = 'superseded', false) AS superseded,
           (to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC')::date AS day,
           coalesce(language, 'unknown') AS language, coalesce(client, 'unknown') AS client
      FROM gateway.request_traces
     WHERE organization_id = $1 AND request_id >= $2 AND request_id < $3 AND tier = 'autocomplete'
       AND status IN (200, 499)
), showing AS (
    SELECT request_id, project_id, choice_index, view_id,
           bool_or(type IN ('select', 'select_part')) AS accepted, bool_or(type = 'dismiss') AS dismissed,
           bool_or(type = 'select' AND characters IS NULL) AS whole,
           coalesce(max(characters) FILTER (WHERE type IN ('select', 'select_part')), 0) AS told
      FROM gateway.completion_events
     WHERE organization_id = $1 AND request_id >= $2 AND request_id < $3
     GROUP BY request_id, project_id, choice_index, view_id
), became AS (
    SELECT request_id, project_id, count(*) AS shown, count(*) FILTER (WHERE accepted) AS accepted,
           count(*) FILTER (WHERE dismissed AND NOT accepted) AS dismissed,
           sum(CASE WHEN choice_index = 0 AND whole AND characters IS NOT NULL THEN characters
                    WHEN choice_index = 0 THEN least(told, characters) ELSE told END)
               FILTER (WHERE accepted) AS kept
      FROM showing JOIN made USING (request_id, project_id) GROUP BY request_id, project_id
)
SELECT {groups}
       count(*) FILTER (WHERE status = 200 AND NOT superseded AND coalesce(characters, 1) > 0) AS completions,
       count(*) FILTER (WHERE status = 200 AND NOT superseded AND characters = 0) AS empty,
       count(*) FILTER (WHERE status = 499) AS abandoned, count(*) FILTER (WHERE superseded) AS superseded,
       coalesce(sum(shown), 0)::bigint AS shown, coalesce(sum(accepted), 0)::bigint AS accepted,
       coalesce(sum(dismissed), 0)::bigint AS dismissed,
       coalesce(sum(characters) FILTER (WHERE status = 200 AND NOT superseded), 0)::bigint AS characters_offered,
       coalesce(sum(kept), 0)::bigint AS characters_kept,
       percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY total_ms)
           FILTER (WHERE status = 200 AND NOT superseded AND coalesce(characters, 1) > 0) AS latencies_ms
  FROM made LEFT JOIN became USING (request_id, project_id) {where} {by}
"""


async def plain_totals(
    connection: asyncpg.Connection[Any],
    organization_id: UUID,
    begin: datetime,
    end: datetime,
    keys: tuple[str, ...] = (),
    **narrowed: object,
) -> dict[tuple[object, ...], dict[str, Any]]:
    """By the values of `keys` (columns of `made`): COUNTS and `latencies_ms`, p50 and p95, or None."""
    groups = ", ".join(keys)
    conditions = " AND ".join(f"{name} = ${number}" for number, name in enumerate(narrowed, 4))
    statement = TOTALS.format(
        groups=f"{groups}," if keys else "",
        where=f"WHERE {conditions}" if conditions else "",
        by=f"GROUP BY {groups}" if keys else "",
    )
    bounds = first_at(begin.timestamp()), first_at(end.timestamp())
    rows = await connection.fetch(statement, organization_id, *bounds, *narrowed.values())
    return {tuple(row[name] for name in keys): {name: row[name] for name in (*COUNTS, "latencies_ms")} for row in rows}
