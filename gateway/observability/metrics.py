"""The gateway's own metrics. Names and meanings are listed in docs/reference/metrics.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from contracts.phases import Phase
from contracts.usage import Purpose, Usage
from gateway.observability.latency_metrics import LatencyMetrics
from gateway.observability.loop_counter import LoopCounter, LoopGauge
from gateway.observability.loop_histogram import LoopHistogram

PHASE_BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0,
)  # fmt: skip

ABORT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class GatewayMetrics:
    """Counters and histograms of one instance, in the given registry.

    A request finds its counters by their labels in a cache, because `labels` itself costs more than counting.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency = LatencyMetrics(registry)
        counter = functools.partial(LoopCounter, registry=registry)
        gauge = functools.partial(LoopGauge, registry=registry)
        histogram = functools.partial(LoopHistogram, registry=registry)

        def counted(name: str, documentation: str, labels: Sequence[str]) -> Callable[..., LoopCounter]:
            return functools.cache(counter(name, documentation, labels).labels)

        self._requests = counted(
            "slipstream_requests",
            "Requests answered, by tier, endpoint, HTTP status and error code (`none` for a success). over_share is "
            "true for requests refused for lack of room because their organization requested more than its share.",
            ["tier", "endpoint", "status", "code", "over_share"],
        )
        self._tokens = counted(
            "slipstream_tokens", "Tokens metered, by tier and kind (prompt, cached, completion).", ["tier", "kind"]
        )
        self._draft_tokens = counted(
            "slipstream_draft_tokens",
            "Draft tokens of engines that report them, by model and kind: proposed (all of them) and accepted. The "
            "usage totals have them by organization.",
            ["model", "kind"],
        )
        self._phases = functools.cache(
            histogram(
                "slipstream_phase_seconds",
                "Wall time of requests, by tier and phase. The phases of a request add up to its total time. Offline "
                "requests are not included, because they wait on purpose.",
                ["tier", "phase"],
                buckets=PHASE_BUCKETS_S,
            ).labels
        )
        self._active = functools.cache(
            gauge("slipstream_active_requests", "Requests that the gateway is serving now.", ["tier"]).labels
        )
        self._attempts = counted(
            "slipstream_attempts",
            "Attempts on engines, by tier, by how they finished, and by how exactly their usage is known.",
            ["tier", "finish", "outcome"],
        )
        self._adapter_loads = counted(
            "slipstream_adapter_loads",
            "Requests to engines to load a LoRA adapter, by outcome: loaded (including adapters that the engine "
            "already had), failed.",
            ["outcome"],
        )
        self._own_requests = counted(
            "slipstream_own_requests",
            "Requests of the deployment itself, by purpose (evals, batches), HTTP status and error code. No other "
            "metric of requests includes them.",
            ["purpose", "status", "code"],
        )
        self._connections = gauge("slipstream_client_connections", "Open client connections, including TLS handshakes.")
        self._connections_ended = counter(
            "slipstream_client_connections_ended",
            "Client connections that a limit refused or ended, by reason: refused and gave_way_limit (limit of all "
            "connections), address_refused and gave_way_address_limit (limit of an address), and the timeouts "
            "head_timeout, body_timeout, unread_timeout, idle_timeout and closing_timeout.",
            ["reason"],
        )
        self._malformed_requests = counter(
            "slipstream_malformed_requests",
            "Requests refused before they were read, by error code: invalid_request (malformed HTTP, or too many "
            "requests at once on one connection), request_headers_too_large.",
            ["code"],
        )
        self._superseded = counted(
            "slipstream_superseded",
            "Requests that a newer keystroke ended, by phase: queue (no engine had the request yet), prefill (before "
            "the first text) or decode.",
            ["stage"],
        )
        self._aborts = functools.cache(
            histogram(
                "slipstream_abort_seconds",
                "Time from the moment at which a response was no longer needed until the engine confirmed that it "
                "had stopped, by cause (client_gone, superseded).",
                ["cause"],
                buckets=ABORT_BUCKETS_S,
            ).labels
        )
        self._observers_failed = counter(
            "slipstream_observer_failures",
            "Request events that a feature failed to process, by its method. The requests continued; the log has the "
            "tracebacks.",
            ["method"],
        )
        self.traces_dropped = counter(
            "slipstream_request_traces_dropped",
            "Phase records not stored because the database was unavailable for too long. Usage is never dropped.",
        )
        self.prefix_samples_dropped = counter(
            "slipstream_prefix_samples_dropped",
            "Requests whose prompts were not compared or whose samples were not stored, because there were too many "
            "at once or the database was unavailable for too long.",
        )
        self._reused = counted(
            "slipstream_generations_reused",
            "Gaps answered from another request's generation, by tier and kind: shared (the same gap, while it was "
            "being filled), continued (the user typed on in the text that the model had generated). A third kind, "
            "abandoned, counts requests that went to an engine after all because that generation ended early.",
            ["tier", "kind"],
        )
        self._autocomplete_events = counted(
            "slipstream_autocomplete_events",
            "Completion events that editors reported, by type (view, select, select_part, dismiss).",
            ["type"],
        )
        self.autocomplete_events_dropped = counter(
            "slipstream_autocomplete_events_dropped",
            "Completion events not stored because the database was unavailable for too long.",
        )
        self.autocomplete_events_unmatched = counter(
            "slipstream_autocomplete_events_unmatched",
            "Completion events not stored because they name no completion of their project, or a completion that "
            "already has 100 rows.",
        )
        self.completion_texts_dropped = counter(
            "slipstream_completion_texts_dropped",
            "Texts of gaps of organizations with text storage that were not stored because the database was "
            "unavailable for too long.",
        )

    def began(self, tier: str) -> None:
        """Count a request that is being served."""
        self._active(tier).inc()

    def ended(self, tier: str, endpoint: str, status: int, code: str, *, over_share: bool = False) -> None:
        self._active(tier).dec()
        self.answered(tier, endpoint, status, code, over_share=over_share)

    def answered(self, tier: str, endpoint: str, status: int, code: str, *, over_share: bool = False) -> None:
        """Count a request's response. status: 499 if its client had left; over_share: whether it was refused because
        its organization requested more than its share."""
        self._requests(tier, endpoint, status, code, "true" if over_share else "false").inc()

    def asked_by_us(self, purpose: Purpose, status: int, code: str) -> None:
        """Count the response to a request of the deployment itself."""
        self._own_requests(purpose.value, status, code).inc()

    def adapter_loaded(self, *, failed: bool) -> None:
        """Count an engine's loading of an adapter."""
        self._adapter_loads("failed" if failed else "loaded").inc()

    def connection_ended(self, reason: str) -> None:
        """Count a client's connection that a limit ended or refused."""
        self._connections_ended.labels(reason).inc()

    def connections_held(self, count: int) -> None:
        """Set the number of clients' open connections."""
        self._connections.set(count)

    def request_malformed(self, code: str) -> None:
        """Count a client's request that was refused before it was read."""
        self._malformed_requests.labels(code).inc()

    def attempted(self, tier: str, finish: str, outcome: str) -> None:
        """Count an attempt's end."""
        self._attempts(tier, finish, outcome).inc()

    def observer_failed(self, method: str) -> None:
        """Count an event of a request that a feature failed to observe."""
        self._observers_failed.labels(method).inc()

    def superseded(self, stage: str) -> None:
        """Count a request that a newer keystroke has ended."""
        self._superseded(stage).inc()

    def aborted(self, cause: str, took_s: float) -> None:
        """Record the time until an engine confirmed that it stopped."""
        self._aborts(cause).observe(took_s)

    def reused(self, tier: str, kind: str) -> None:
        """Count a request that has read another's generation."""
        self._reused(tier, kind).inc()

    def autocomplete_event(self, kind: str) -> None:
        """Count an editor's report about a completion."""
        self._autocomplete_events(kind).inc()

    def observe_phases(self, tier: str, durations_s: dict[Phase, float]) -> None:
        """Add one request's phases."""
        for phase, duration_s in durations_s.items():
            self._phases(tier, phase).observe(duration_s)

    def observe_usage(self, tier: str, model: str, usage: Usage) -> None:
        """Add one attempt's tokens. model: the name of a served model."""
        self._tokens(tier, "prompt").inc(usage.prompt_tokens)
        self._tokens(tier, "cached").inc(usage.cached_tokens)
        self._tokens(tier, "completion").inc(usage.completion_tokens)
        if usage.draft_tokens:
            self._draft_tokens(model, "proposed").inc(usage.draft_tokens)
            self._draft_tokens(model, "accepted").inc(usage.accepted_draft_tokens)
