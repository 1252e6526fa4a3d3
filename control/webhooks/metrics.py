"""The worker's metric of webhooks: attempts to deliver, by outcome."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

OUTCOMES = ("delivered", "retried", "given_up")


class WebhookMetrics:
    """One worker's counter of attempts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        attempts = Counter(
            "slipstream_webhook_attempts",
            "Tries to deliver a webhook, by outcome: delivered; retried (it failed and is tried again); given_up (it"
            " failed for the last time).",
            ["outcome"],
            registry=registry,
        )
        self._attempts = {outcome: attempts.labels(outcome) for outcome in OUTCOMES}

    def tried(self, *, delivered: bool, last: bool) -> None:
        """Count an attempt. last: whether it was the last one."""
        self._attempts["delivered" if delivered else "given_up" if last else "retried"].inc()
