"""The worker's metric of webhooks: attempts to deliver, by outcome."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

OUTCOMES = ("delivered", "retried", "given_up")


class WebhookMetrics:
    """One worker's counter of attempts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        attempts = Counter(
            "slipstream_webhook_attempts",
            "Attempts to deliver a webhook event, by outcome: delivered; retried (the attempt failed, and another "
            "one follows); given_up (the last attempt failed).",
            ["outcome"],
            registry=registry,
        )
        self._attempts = {outcome: attempts.labels(outcome) for outcome in OUTCOMES}

    def tried(self, *, delivered: bool, last: bool) -> None:
        """Count an attempt. last: whether it was the last one."""
        self._attempts["delivered" if delivered else "given_up" if last else "retried"].inc()
