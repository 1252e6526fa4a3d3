"""The gateway's own metrics. Names and meanings are listed in docs/reference/metrics.md.

With several instances on one port every process writes its samples to files in a shared folder and any instance
answers a scrape for all (prometheus_client's multiprocess mode); main.py sets that up before this is imported.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from contracts.phases import Phase
from contracts.usage import Usage

PHASE_BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0,
)  # fmt: skip


class GatewayMetrics:
    """Counters and histograms of one instance, on the registry it is given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "slipstream_requests",
            "Requests answered, by tier, endpoint, HTTP status and error code (none when it went well).",
            ["tier", "endpoint", "status", "code"],
            registry=registry,
        )
        self.tokens = Counter(
            "slipstream_tokens",
            "Tokens metered, by tier and kind (prompt, cached, completion).",
            ["tier", "kind"],
            registry=registry,
        )
        self.phases = Histogram(
            "slipstream_phase_seconds",
            "Wall time of requests by tier and phase; the phases of a request sum to its whole time.",
            ["tier", "phase"],
            buckets=PHASE_BUCKETS_S,
            registry=registry,
        )
        self.ttft = Histogram(
            "slipstream_time_to_first_token_seconds",
            "From the request's arrival until its first generated text left the gateway, by tier.",
            ["tier"],
            buckets=PHASE_BUCKETS_S,
            registry=registry,
        )
        self.active = Gauge(
            "slipstream_active_requests",
            "Requests being served now.",
            ["tier"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.outcomes = Counter(
            "slipstream_attempts",
            "Attempts on engines, by tier, how they finished and how far their usage is known.",
            ["tier", "finish", "outcome"],
            registry=registry,
        )
        self.traces_dropped = Counter(
            "slipstream_request_traces_dropped",
            "Phase records not stored because the database was away for too long. Usage is never dropped.",
            registry=registry,
        )

    def observe_phases(self, tier: str, durations_s: dict[Phase, float]) -> None:
        """Add one request's phases."""
        for phase, duration_s in durations_s.items():
            self.phases.labels(tier, phase.value).observe(duration_s)

    def observe_usage(self, tier: str, usage: Usage) -> None:
        """Add one attempt's tokens."""
        self.tokens.labels(tier, "prompt").inc(usage.prompt_tokens)
        self.tokens.labels(tier, "cached").inc(usage.cached_tokens)
        self.tokens.labels(tier, "completion").inc(usage.completion_tokens)
