"""Detects drops of tenants' reusable shares, records them, and notifies their webhooks. Called by the worker.

A drop is reported once. It ends when the share has nearly recovered, or has become usual.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from contracts.dated_request_id import first_at
from control.prefixes.contract import OpenDrop, Place, Standing, Totals, culprit, standing, usual_share
from control.prefixes.rollup import LOCK_ID
from control.prefixes.upkeep_config import PrefixUpkeepConfig
from storage.calendar import hour_of
from storage.worker_connection import Connection, connect

logger = logging.getLogger(__name__)

SHARE_DROPPED = "prefix.share_dropped"
"""The webhooks' event (control/webhooks/outbox.py)."""
NOW = """
SELECT organization_id, template, model, cause, coalesce(part, ''), count(*), sum(prompt_tokens)::bigint,
       sum(reusable_tokens)::bigint
  FROM gateway.prefix_samples WHERE request_id >= %s AND request_id < %s
 GROUP BY organization_id, template, model, cause, coalesce(part, '')
"""
BEFORE = """
SELECT organization_id, hour, template, model, cause, part, sum(requests)::bigint, sum(prompt_tokens)::bigint,
       sum(reusable_tokens)::bigint
  FROM gateway.prefix_shares WHERE hour >= %s AND hour < %s
 GROUP BY organization_id, hour, template, model, cause, part
"""
OPEN = """
SELECT organization_id, usual_share, extract(epoch FROM %s::timestamptz - began_at)::double precision
  FROM gateway.prefix_drops WHERE ended_at IS NULL
"""
# The position by which half of the requests have begun to differ.
WHERE_MOST = """
SELECT mode() WITHIN GROUP (ORDER BY part_number), percentile_disc(0.5) WITHIN GROUP (ORDER BY differing_token)
  FROM gateway.prefix_samples
 WHERE organization_id = %s AND request_id >= %s AND request_id < %s
   AND template = %s AND model = %s AND cause = %s AND coalesce(part, '') = %s
"""
BEGIN = """
INSERT INTO gateway.prefix_drops
       (organization_id, began_at, usual_share, share, template, model, cause, part, part_number, differing_token)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id
"""
END = "UPDATE gateway.prefix_drops SET ended_at = %s WHERE organization_id = %s AND ended_at IS NULL"
TELL = """
INSERT INTO gateway.webhook_events (organization_id, type, data, once) VALUES (%s, %s, %s::jsonb, %s)
    ON CONFLICT (organization_id, once) DO NOTHING
"""

Sums = dict[Place, Totals]


class Drop(msgspec.Struct, frozen=True):
    """A drop that has begun."""

    organization_id: UUID
    began_at: datetime
    usual_share: float
    share: float
    template: str | None = None
    model: str | None = None
    cause: str | None = None
    part: str | None = None
    part_number: int | None = None
    differing_token: int | None = None


def look_for_drops(database_url: str, config: PrefixUpkeepConfig, now: datetime | None = None) -> list[Drop]:
    """Compare the latest hours with earlier ones; returns new drops. Raises psycopg.Error."""
    now = datetime.now(UTC) if now is None else now
    since = now - timedelta(seconds=config.window_s)
    with connect(database_url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        window = (first_at(since.timestamp()), first_at(now.timestamp()))
        latest: dict[UUID, Sums] = defaultdict(dict)
        for organization_id, *place, requests, prompts, reusable in connection.execute(NOW, window):
            latest[organization_id][Place(*place)] = Totals(requests, prompts, reusable)
        hours = _hours_before(connection, hour_of(since), config.usual_hours)
        found = connection.execute(OPEN, (now,)).fetchall()
        drops = {organization_id: OpenDrop(share, age_s) for organization_id, share, age_s in found}
        begun = []
        for organization_id in latest.keys() | drops.keys():
            sums, before = latest.get(organization_id, {}), hours.get(organization_id, {})
            usual = usual_share([_total(hour) for hour in before.values()], config.least_requests)
            state = standing(_total(sums), usual, drops.get(organization_id), config)
            if state is Standing.RECOVERED:
                connection.execute(END, (now, organization_id))
            elif state is Standing.DROPPED and usual is not None:
                drop = _drop(connection, Drop(organization_id, now, usual, _total(sums).share), before, sums, window)
                _record(connection, drop)
                begun.append(drop)
        return begun


def _hours_before(connection: Connection, until: datetime, hours: int) -> dict[UUID, dict[datetime, Sums]]:
    found: dict[UUID, dict[datetime, Sums]] = defaultdict(lambda: defaultdict(dict))
    rows = connection.execute(BEFORE, (until - timedelta(hours=hours), until))
    for organization_id, hour, *place, requests, prompts, reusable in rows:
        found[organization_id][hour][Place(*place)] = Totals(requests, prompts, reusable)
    return found


def _total(sums: Sums) -> Totals:
    return _sum(sums.values())


def _drop(
    connection: Connection, drop: Drop, hours: dict[datetime, Sums], latest: Sums, window: tuple[str, str]
) -> Drop:
    """The drop, with the key where most is lost."""
    together: dict[Place, list[Totals]] = defaultdict(list)
    for sums in hours.values():
        for place, totals in sums.items():
            together[place].append(totals)
    worst = culprit({place: _sum(each) for place, each in together.items()}, latest)
    if worst is None:
        return drop
    row: Any = connection.execute(WHERE_MOST, (drop.organization_id, *window, *worst)).fetchone()
    return msgspec.structs.replace(
        drop,
        template=worst.template,
        model=worst.model,
        cause=worst.cause,
        part=worst.part or None,
        part_number=row[0],
        differing_token=row[1],
    )


def _sum(totals: Collection[Totals]) -> Totals:
    return Totals(
        sum(each.requests for each in totals),
        sum(each.prompt_tokens for each in totals),
        sum(each.reusable_tokens for each in totals),
    )


def _record(connection: Connection, drop: Drop) -> None:
    fields = msgspec.structs.asdict(drop)
    [drop_id] = connection.execute(BEGIN, tuple(fields.values())).fetchone() or (None,)
    data = {name: value for name, value in fields.items() if name != "organization_id"}
    event = (drop.organization_id, SHARE_DROPPED, msgspec.json.encode(data).decode(), f"prefix:{drop_id}")
    connection.execute(TELL, event)
    logger.warning(
        "organization %s: the reusable share of its prompts is %.0f %%, usually %.0f %%; %s",
        drop.organization_id,
        drop.share * 100,
        drop.usual_share * 100,
        drop.cause or "no single cause",
    )
