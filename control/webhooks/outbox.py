"""Events for customers' webhooks. Any part of the platform may tell one, in the transaction that made it true:

    INSERT INTO gateway.webhook_events (organization_id, type, data, once) VALUES (…) ON CONFLICT DO NOTHING

or `emit`. A trigger makes one delivery for each of the organization's webhooks that wants the type; the worker sends
them. `once` names the occasion (`budget:project:<id>:2026-11:80`): the second event with the same text is not recorded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from gateway.limits.spending import Crossing

INSERT = """
INSERT INTO gateway.webhook_events (organization_id, type, data, once) VALUES ($1, $2, $3::text::jsonb, $4)
    ON CONFLICT (organization_id, once) DO NOTHING RETURNING id
"""


class EventType(StrEnum):
    """Types of events."""

    BUDGET_THRESHOLD_REACHED = "budget.threshold_reached"
    """data: level, subject_id, tier, month, percent, limit_micro, spent_micro, refused (false)."""
    BUDGET_EXHAUSTED = "budget.exhausted"
    """The same, at 100 %, and before it (`refused`: true, once for each limit of a month) when the first request is
    refused because what is left might not pay for it: until the month ends or the limit is raised."""
    PREFIX_SHARE_DROPPED = "prefix.share_dropped"
    """data: began_at, usual_share, share, template, model, cause, part, part_number, differing_token; emitted by
    control/prefixes/drops.py."""
    NIGHT_FAILED = "evals.night_failed"
    """A model's night of evals found a slice worse; for the operating organization only. data: model, pool, night,
    run_id, reason, changed, version_since, slices, release_id, rolled_back. control/eval_runs/night_judge.py sends
    it."""
    TEST = "webhook.test"
    """Sent by hand, to try a webhook."""


async def emit(
    connection: asyncpg.Connection[Any],
    organization_id: UUID,
    kind: EventType,
    data: dict[str, Any],
    once: str | None = None,
) -> UUID | None:
    """Record an event; returns its id, None when `once` was recorded before."""
    event_id: UUID | None = await connection.fetchval(
        INSERT, organization_id, kind.value, msgspec.json.encode(data).decode(), once
    )
    return event_id


async def tell_crossing(connection: asyncpg.Connection[Any], crossing: Crossing) -> None:
    """A budget has reached a threshold or refused a request: what limits call, in the transaction that records it."""
    data = msgspec.structs.asdict(crossing)
    organization_id = UUID(data.pop("organization_id"))
    exhausted = crossing.refused or crossing.percent >= 100
    kind = EventType.BUDGET_EXHAUSTED if exhausted else EventType.BUDGET_THRESHOLD_REACHED
    occasion = "refused" if crossing.refused else crossing.percent
    place = f"{crossing.level}:{crossing.subject_id}:{crossing.tier or ''}"
    once = f"budget:{place}:{crossing.month}:{occasion}:{crossing.limit_micro}"
    await emit(connection, organization_id, kind, data, once)
