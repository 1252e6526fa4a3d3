"""Events for customers' webhooks. Any part of the platform may record one, in the transaction that causes it:

    INSERT INTO gateway.webhook_events (organization_id, type, data, once) VALUES (…) ON CONFLICT DO NOTHING

or call `emit`. A trigger creates a delivery for each of the organization's webhooks with the type; the worker sends it.
`once` names the occasion (`budget:project:<id>:2026-11:80`): a second event with the same text is not recorded.
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
    """The same data, at 100 %. It is also sent earlier (`refused`: true, once for each limit of a month), when the
    first request is refused because the rest might not pay for it."""
    PREFIX_SHARE_DROPPED = "prefix.share_dropped"
    """data: began_at, usual_share, share, template, model, cause, part, part_number, differing_token; emitted by
    control/prefixes/drops.py."""
    NIGHT_FAILED = "evals.night_failed"
    """A model's nightly evals found a slice worse. Only for the operating organization. data: model, pool, night,
    run_id, reason, changed, version_since, slices, release_id, rolled_back. control/eval_runs/night_judge.py sends
    it."""
    TEST = "webhook.test"
    """Sent on request, to test a webhook."""


async def emit(
    connection: asyncpg.Connection[Any],
    organization_id: UUID,
    kind: EventType,
    data: dict[str, Any],
    once: str | None = None,
) -> UUID | None:
    """Record an event, and return its id; None if `once` was recorded before."""
    event_id: UUID | None = await connection.fetchval(
        INSERT, organization_id, kind.value, msgspec.json.encode(data).decode(), once
    )
    return event_id


async def tell_crossing(connection: asyncpg.Connection[Any], crossing: Crossing) -> None:
    """Record, in the crossing's transaction, that a budget has reached a threshold or refused a request."""
    data = msgspec.structs.asdict(crossing)
    organization_id = UUID(data.pop("organization_id"))
    exhausted = crossing.refused or crossing.percent >= 100
    kind = EventType.BUDGET_EXHAUSTED if exhausted else EventType.BUDGET_THRESHOLD_REACHED
    occasion = "refused" if crossing.refused else crossing.percent
    subject = f"{crossing.level}:{crossing.subject_id}:{crossing.tier or ''}"
    once = f"budget:{subject}:{crossing.month}:{occasion}:{crossing.limit_micro}"
    await emit(connection, organization_id, kind, data, once)
