"""Metrics of tracing itself, in every process that traces."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class SpanMetrics:
    """Counts spans by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        spans = Counter(
            "slipstream_trace_spans",
            "Spans of traced requests, by outcome: exported; dropped (too many were waiting for the collector); "
            "failed (the collector did not accept them).",
            ["outcome"],
            registry=registry,
        )
        self.exported, self.dropped, self.failed = map(spans.labels, ("exported", "dropped", "failed"))
