"""Chooses the next due deliveries, with turns among organizations, none of which gets more than its share.

A turn goes to the organization with the fewest deliveries in progress, so one that has none is always served before
another's second. Taking a delivery postpones it by a lease in the database, so that no other worker takes it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from control.api.config import WebhooksConfig

LEASE_MARGIN_S = 30.0

# `waiting` skips from webhook to webhook over the index of pending deliveries: a webhook with a million of them costs
# one step. Each then offers as many as it may have in progress. The numbers of an organization's offers continue from
# its deliveries in progress; the lowest win. Locking comes last and checks again: another worker may have been faster.
TAKE = """
WITH RECURSIVE waiting AS (
    (SELECT webhook_id FROM gateway.webhook_deliveries WHERE state = 'pending' ORDER BY webhook_id LIMIT 1)
     UNION ALL
    SELECT (SELECT next.webhook_id FROM gateway.webhook_deliveries AS next
             WHERE next.state = 'pending' AND next.webhook_id > waiting.webhook_id
             ORDER BY next.webhook_id LIMIT 1)
      FROM waiting WHERE waiting.webhook_id IS NOT NULL
),
offered AS (
    SELECT webhook.organization_id, offer.id, offer.next_attempt_at, offer.place
      FROM waiting
      JOIN gateway.webhooks AS webhook ON webhook.id = waiting.webhook_id
      LEFT JOIN unnest($5::uuid[], $6::bigint[]) AS busy (id, under_way) ON busy.id = webhook.id
     CROSS JOIN LATERAL (
           SELECT delivery.id, delivery.next_attempt_at,
                  row_number() OVER (ORDER BY delivery.next_attempt_at, delivery.id) AS place
             FROM gateway.webhook_deliveries AS delivery
            WHERE delivery.webhook_id = webhook.id AND delivery.state = 'pending' AND delivery.next_attempt_at <= now()
            ORDER BY delivery.next_attempt_at, delivery.id
            LIMIT greatest($3::bigint - coalesce(busy.under_way, 0), 0)) AS offer
),
turns AS (
    SELECT offered.id, offered.next_attempt_at,
           coalesce(busy.under_way, 0)
           + row_number() OVER (PARTITION BY offered.organization_id
                                ORDER BY offered.place, offered.next_attempt_at, offered.id) AS turn
      FROM offered
      LEFT JOIN unnest($7::uuid[], $8::bigint[]) AS busy (id, under_way) ON busy.id = offered.organization_id
),
taken AS (
    SELECT delivery.id, chosen.turn
      FROM (SELECT id, turn, next_attempt_at FROM turns WHERE turn <= $2
             ORDER BY turn, next_attempt_at, id LIMIT $1) AS chosen
      JOIN gateway.webhook_deliveries AS delivery ON delivery.id = chosen.id
     WHERE delivery.state = 'pending' AND delivery.next_attempt_at <= now()
       FOR UPDATE OF delivery SKIP LOCKED
)
UPDATE gateway.webhook_deliveries AS delivery SET next_attempt_at = now() + make_interval(secs => $4)
  FROM taken, gateway.webhooks AS webhook, gateway.webhook_events AS event
 WHERE delivery.id = taken.id AND webhook.id = delivery.webhook_id AND event.id = delivery.event_id
RETURNING delivery.id, delivery.attempts, webhook.id AS webhook_id, url, secret,
          CASE WHEN previous_secret_expires_at > now() THEN previous_secret END AS previous_secret,
          webhook.disabled_at IS NOT NULL AS disabled,
          event.id AS event_id, event.type, event.organization_id, event.data::text AS data, event.created_at
"""


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery to try now, with everything to send. attempts: number of earlier attempts."""

    id: UUID
    attempts: int
    webhook_id: UUID
    url: str
    secret: bytes
    previous_secret: bytes | None
    disabled: bool
    event_id: UUID
    type: str
    organization_id: UUID
    data: str
    created_at: datetime


async def take_due(connection: asyncpg.Connection[Any], under_way: Sequence[Due], config: WebhooksConfig) -> list[Due]:
    """Take the next deliveries, after those `under_way`. Their lease outlasts an attempt. Raises asyncpg's errors."""
    free = config.concurrency - len(under_way)
    if free <= 0:
        return []
    of_webhook = Counter(delivery.webhook_id for delivery in under_way)
    of_organization = Counter(delivery.organization_id for delivery in under_way)
    rows = await connection.fetch(
        TAKE,
        free,
        config.organization_concurrency,
        config.endpoint_concurrency,
        config.timeout_s + LEASE_MARGIN_S,
        list(of_webhook.keys()),
        list(of_webhook.values()),
        list(of_organization.keys()),
        list(of_organization.values()),
    )
    return [Due(**dict(row)) for row in rows]
