"""Counts a window's requests with a waiting client (control/slo/asked.py), its failures and its refusals. Whole hours
come from the roll-up (control/slo/request_rollup.py), the rest from the traces."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.dated_request_id import first_at
from contracts.fair_share import FAIR_SHARE
from contracts.generation import Tier
from control.slo.asked import FAILED_CODE, KNOWN_MODEL, LIMITED, RETRIED, RULE, WAITED_FOR
from control.slo.judgement import FAILED
from control.slo.request_rollup import EVERY_TIER, EVERYBODY, HOUR, NO_KEY
from control.slo.standing import LAST_RUN
from storage.calendar import hour_of
from storage.rows import fetchval

MAX_REFUSED = 100
ARRIVED_MS = "('x' || substr(request_id, 5, 12))::bit(48)::bigint"
"""See `dated_request_id.arrived_at_s`."""
ASKED = f"""
    FROM gateway.request_traces
   WHERE request_id >= $1 AND request_id < $2 AND ($3::uuid IS NULL OR organization_id = $3)
     AND ($4::text IS NULL OR tier = $4) AND {WAITED_FOR}
"""
_REFUSED = f"coalesce({LIMITED} OR over_share, false)"
_HAS_REASON = f"error_code IS NOT NULL AND ({FAILED} OR {LIMITED})"
# One scan for all counts: hours without totals may hold millions of rows.
OUTCOMES = f"""
SELECT organization_id, {_REFUSED} AS is_refused, CASE WHEN {_REFUSED} THEN key_id END AS key_id,
       CASE WHEN {_HAS_REASON} THEN error_code END AS error_code, CASE WHEN {_HAS_REASON} THEN {RULE} END AS rule,
       CASE WHEN {KNOWN_MODEL} THEN model END AS model, coalesce(pool, '') AS pool, {FAILED_CODE} AS failed_code,
       count(*) AS requests, count(*) FILTER (WHERE {RETRIED}) AS retried,
       count(*) FILTER (WHERE status = 200) AS answered, count(*) FILTER (WHERE over_share) AS over_share
  {ASKED} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""
SECONDS = f"""
SELECT coalesce(sum(n * n), 0)::bigint FROM (SELECT count(*) AS n {ASKED} GROUP BY ({ARRIVED_MS} - $5) / 1000) AS each
"""  # noqa: S608
HOURS = "at >= $1 AND at < $2"
OF_HOURS = f"""
SELECT coalesce(sum(requests), 0)::bigint AS requests, coalesce(sum(retried), 0)::bigint AS retried,
       coalesce(sum(answered), 0)::bigint AS answered, coalesce(sum(squares), 0)::bigint AS squares
  FROM gateway.request_hours WHERE {HOURS} AND organization_id = $3 AND tier = $4
"""  # noqa: S608
_OF = f"{HOURS} AND ($3::uuid IS NULL OR organization_id = $3) AND ($4::text IS NULL OR tier = $4)"
CODES_OF_HOURS = f"""
SELECT error_code, rule, sum(requests)::bigint AS requests
  FROM gateway.request_error_hours WHERE {_OF} GROUP BY 1, 2
"""  # noqa: S608
TARGETS_OF_HOURS = f"""
SELECT model, pool, error_code, sum(requests)::bigint AS requests
  FROM gateway.request_target_hours WHERE {_OF} GROUP BY 1, 2, 3
"""  # noqa: S608
# Twice as many as are returned: the traces of partial hours may change the order.
REFUSED_OF_HOURS = f"""
SELECT organization_id, nullif(key_id, '{NO_KEY}') AS key_id, sum(requests)::bigint AS requests
  FROM gateway.refused_key_hours WHERE {_OF} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {2 * MAX_REFUSED}
"""  # noqa: S608
OVER_SHARE_OF_HOURS = f"""
SELECT organization_id, sum(requests)::bigint AS requests
  FROM gateway.request_error_hours WHERE {_OF} AND rule = '{FAIR_SHARE}' GROUP BY 1
"""  # noqa: S608
REQUESTS_OF_HOURS = f"""
SELECT organization_id, sum(requests)::bigint AS requests
  FROM gateway.request_hours WHERE {HOURS} AND organization_id = ANY($3) AND tier = $4 GROUP BY 1
"""  # noqa: S608
KEYS = "SELECT id, name FROM gateway.api_keys WHERE id = ANY($1)"


class RefusedOf(msgspec.Struct, frozen=True):
    """Refused requests of one organization and key. key: its name and id, or the id alone if it was deleted."""

    organization_id: UUID
    key: str | None
    requests: int


class Counts(msgspec.Struct):
    """Counts of a window, summed over its parts."""

    requests: int = 0
    retried: int = 0
    answered: int = 0
    squares: int = 0
    """The sum, over seconds, of the squared number of requests."""
    codes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By error code and refusing rule; the rule of a failure is empty."""
    targets: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    """By model, pool and error code; the code is empty if the platform did not fail."""
    refused_of: Counter[tuple[UUID, UUID | None]] = msgspec.field(default_factory=Counter)
    """Refusals by organization and key."""
    requests_of: Counter[UUID] = msgspec.field(default_factory=Counter)
    """By organization; complete only for the organizations in `over_share_of`."""
    over_share_of: Counter[UUID] = msgspec.field(default_factory=Counter)
    """By organization, refusals beyond its fair share."""
    refused: list[RefusedOf] = msgspec.field(default_factory=list)
    """The largest groups of `refused_of`."""

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """Refusals by error code and rule."""
        return {key: count for key, count in self.codes.items() if key[1]}

    @property
    def failures(self) -> dict[str, int]:
        """Failures by error code."""
        return {code: count for (code, rule), count in self.codes.items() if not rule}


async def counts_of(
    connection: asyncpg.Connection[Any],
    began: datetime,
    ended: datetime,
    organization_id: UUID | None,
    tier: Tier | None,
) -> Counts:
    """Count the requests that arrived in a window, of one organization or all and one tier or all."""
    counts = Counts()
    last_run = await fetchval(connection, LAST_RUN)
    # Only hours that had ended at the last run; the next run adds rows that came since.
    since = hour_of(began.astimezone(UTC) + HOUR - began.resolution)
    until = since if last_run is None else hour_of(min(ended, last_run).astimezone(UTC))
    if until <= since:
        await _add_traces(connection, counts, began, ended, organization_id, tier)
    else:
        await _add_traces(connection, counts, began, since, organization_id, tier)
        await _add_hours(connection, counts, since, until, organization_id, tier)
        await _add_traces(connection, counts, until, ended, organization_id, tier)
        await _add_requests_of_hours(connection, counts, since, until, tier)
    counts.refused = await _named(connection, counts.refused_of.most_common(MAX_REFUSED))
    return counts


async def _add_traces(
    connection: asyncpg.Connection[Any],
    counts: Counts,
    began: datetime,
    ended: datetime,
    organization_id: UUID | None,
    tier: Tier | None,
) -> None:
    if began >= ended:
        return
    parameters = (first_at(began.timestamp()), first_at(ended.timestamp()), organization_id, tier)
    for row in await connection.fetch(OUTCOMES, *parameters):
        counts.requests += row["requests"]
        counts.retried += row["retried"]
        counts.answered += row["answered"]
        counts.requests_of[row["organization_id"]] += row["requests"]
        if row["over_share"]:
            counts.over_share_of[row["organization_id"]] += row["over_share"]
        if row["model"] is not None:
            counts.targets[row["model"], row["pool"], row["failed_code"]] += row["requests"]
        if row["error_code"] is not None:
            counts.codes[row["error_code"], row["rule"]] += row["requests"]
        if row["is_refused"]:
            counts.refused_of[row["organization_id"], row["key_id"]] += row["requests"]
    counts.squares += await connection.fetchval(SECONDS, *parameters, int(began.timestamp() * 1000))


async def _add_hours(
    connection: asyncpg.Connection[Any],
    counts: Counts,
    began: datetime,
    ended: datetime,
    organization_id: UUID | None,
    tier: Tier | None,
) -> None:
    row = await connection.fetchrow(OF_HOURS, began, ended, organization_id or EVERYBODY, tier or EVERY_TIER)
    counts.requests += row["requests"]
    counts.retried += row["retried"]
    counts.answered += row["answered"]
    counts.squares += row["squares"]
    parameters = (began, ended, organization_id, tier)
    for row in await connection.fetch(CODES_OF_HOURS, *parameters):
        counts.codes[row["error_code"], row["rule"]] += row["requests"]
    for row in await connection.fetch(TARGETS_OF_HOURS, *parameters):
        counts.targets[row["model"], row["pool"], row["error_code"]] += row["requests"]
    for row in await connection.fetch(REFUSED_OF_HOURS, *parameters):
        counts.refused_of[row["organization_id"], row["key_id"]] += row["requests"]
    for row in await connection.fetch(OVER_SHARE_OF_HOURS, *parameters):
        counts.over_share_of[row["organization_id"]] += row["requests"]


async def _add_requests_of_hours(
    connection: asyncpg.Connection[Any], counts: Counts, began: datetime, ended: datetime, tier: Tier | None
) -> None:
    """Add the requests of organizations with refusals beyond their shares; all of them over many hours are too many."""
    organization_ids = list(counts.over_share_of)
    if not organization_ids:
        return
    for row in await connection.fetch(REQUESTS_OF_HOURS, began, ended, organization_ids, tier or EVERY_TIER):
        counts.requests_of[row["organization_id"]] += row["requests"]


async def _named(
    connection: asyncpg.Connection[Any], most: list[tuple[tuple[UUID, UUID | None], int]]
) -> list[RefusedOf]:
    ids = [key_id for (_, key_id), _ in most if key_id is not None]
    names = {row["id"]: f"{row['name']} ({row['id']})" for row in await connection.fetch(KEYS, ids)}
    return [
        RefusedOf(organization_id, None if key_id is None else names.get(key_id, str(key_id)), requests)
        for (organization_id, key_id), requests in most
    ]
