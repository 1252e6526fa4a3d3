"""One round of webhook deliveries, for tests that look at what it did."""

from __future__ import annotations

from control.webhooks.delivery import WebhookDelivery

LONGEST_S = 60.0
"""Beyond any timeout of these tests: nothing under way is cut off."""


async def deliver_round(delivery: WebhookDelivery) -> int:
    """Deliver until nothing is due and nothing under way; returns how many were tried."""
    tried = 0
    async with delivery.at_work() as shift:
        while started := await shift.start_due():
            tried += started
            await shift.end(LONGEST_S)
    return tried
