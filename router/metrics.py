"""The router's Prometheus metrics. State is read from the core when scraped; what happens is counted as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from router.core.decisions import Decision, Granted, ProbeGeneration, Refused
from router.core.dispatcher import Dispatcher
from router.core.replica import Health

DECISION_BUCKETS_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 50e-3)
QUEUE_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COLLECT_TIMEOUT_S = 10.0


class RouterMetrics:
    """One registry per router, so that several can live in one process (tests, simulator)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.registry = CollectorRegistry()
        self.grants = Counter("slipstream_router_grants", "Leases granted.", ["replica"], registry=self.registry)
        self.sheds = Counter(
            "slipstream_router_sheds",
            "Asks refused, by error code and reason.",
            ["code", "reason"],
            registry=self.registry,
        )
        self.generation_probes = Counter(
            "slipstream_router_generation_probes",
            "Generations asked of a replica by the router itself, because requests failed there.",
            ["replica"],
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "slipstream_router_queue_seconds",
            "Time granted asks spent waiting for a place.",
            buckets=QUEUE_BUCKETS_S,
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "slipstream_router_decision_seconds",
            "Time to decide one acquire, without reading and writing messages.",
            buckets=DECISION_BUCKETS_S,
            registry=self.registry,
        )
        self.streams_closed = Counter(
            "slipstream_router_streams_closed",
            "Gateway streams the router closed because they did not read or were replaced.",
            registry=self.registry,
        )
        self.registry.register(_CoreCollector(dispatcher))

    def decided(self, decision: Decision) -> None:
        """Count one decision."""
        if isinstance(decision, Granted):
            self.grants.labels(decision.lease.engine.replica_id).inc()
            self.queue_seconds.observe(decision.lease.queued_s)
        elif isinstance(decision, Refused):
            self.sheds.labels(decision.code, decision.cause.value).inc()
        elif isinstance(decision, ProbeGeneration):
            self.generation_probes.labels(decision.replica_id).inc()

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)


class _CoreCollector(Collector):
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterator[Metric]:
        fleet = self._dispatcher.fleet
        leases = GaugeMetricFamily("slipstream_router_leases", "Live leases.", labels=["pool", "replica"])
        healthy = GaugeMetricFamily(
            "slipstream_router_replica_healthy", "1 when the replica may be given leases.", labels=["pool", "replica"]
        )
        foreign = GaugeMetricFamily(
            "slipstream_router_foreign_requests",
            "Requests the engine reported beyond our leases.",
            labels=["pool", "replica"],
        )
        for replica in fleet.replicas.values():
            leases.add_metric([replica.pool, replica.id], replica.leases)
            healthy.add_metric([replica.pool, replica.id], float(replica.health is Health.HEALTHY))
            foreign.add_metric([replica.pool, replica.id], replica.foreign)
        queued = GaugeMetricFamily("slipstream_router_queued", "Asks waiting for a place.", labels=["pool"])
        for pool in fleet.pools.values():
            queued.add_metric([pool.name], len(pool.queue))
        gateways = GaugeMetricFamily("slipstream_router_gateways", "Gateways connected.")
        gateways.add_metric([], len(self._dispatcher.connections))
        version = GaugeMetricFamily("slipstream_router_desired_state_version", "Version of the desired state held.")
        version.add_metric([], fleet.version)
        yield from (leases, healthy, foreign, queued, gateways, version)
        yield from self._learnt()
        yield from self._answers()

    def _learnt(self) -> Iterator[Metric]:
        """What the core thinks of its replicas."""
        names = ["pool", "replica"]
        prefill = GaugeMetricFamily(
            "slipstream_router_prefill_tokens", "Prompt tokens granted whose first token has not come.", labels=names
        )
        headroom = GaugeMetricFamily(
            "slipstream_router_headroom_tokens", "KV tokens it could still be given, where it reports.", labels=names
        )
        ratio = GaugeMetricFamily(
            "slipstream_router_slowness",
            "Learnt time to first token relative to its pool; above 1 slower.",
            labels=names,
        )
        breaker = GaugeMetricFamily(
            "slipstream_router_breaker_open", "1 while its circuit breaker keeps requests away.", labels=names
        )
        blocks = GaugeMetricFamily(
            "slipstream_router_prefix_blocks", "Prompt blocks it is thought to have cached.", labels=names
        )
        fleet = self._dispatcher.fleet
        for replica in fleet.replicas.values():
            place = [replica.pool, replica.id]
            prefill.add_metric(place, replica.prefill_tokens)
            if replica.headroom_tokens is not None:
                headroom.add_metric(place, replica.headroom_tokens)
            ratio.add_metric(place, replica.ratio.value)
            breaker.add_metric(place, float(replica.breaker.open))
            blocks.add_metric(place, fleet.blocks_of(replica))
        yield from (prefill, headroom, ratio, breaker, blocks)

    def _answers(self) -> Iterator[Metric]:
        """Refusals by tier and their objective; how well prefixes were predicted."""
        rates, config = self._dispatcher.placer.sheds, self._dispatcher.config
        asks = CounterMetricFamily("slipstream_router_asks", "Asks answered, granted or refused.", labels=["tier"])
        refused = CounterMetricFamily(
            "slipstream_router_refusals", "Asks refused for lack of room or of engines.", labels=["tier"]
        )
        part = GaugeMetricFamily(
            "slipstream_router_shed_ratio", "Part of the asks refused, over about the last 2,000.", labels=["tier"]
        )
        for tier, count in rates.asks.items():
            asks.add_metric([tier], count)
            refused.add_metric([tier], rates.refusals.get(tier, 0))
            part.add_metric([tier], rates.ratio[tier])
        objective = GaugeMetricFamily("slipstream_router_shed_objective", "What the shed ratio should stay below.")
        objective.add_metric([], config.shed_objective)
        predicted = CounterMetricFamily(
            "slipstream_router_predicted_cached_tokens", "Prompt tokens expected to be cached.", labels=["pool"]
        )
        reported = CounterMetricFamily(
            "slipstream_router_reported_cached_tokens", "Prompt tokens engines said were cached.", labels=["pool"]
        )
        for pool in self._dispatcher.fleet.pools.values():
            predicted.add_metric([pool.name], pool.predicted_cached_tokens)
            reported.add_metric([pool.name], pool.reported_cached_tokens)
        yield from (asks, refused, part, objective, predicted, reported)


class LoopCollector(Collector):
    """Another collector, asked on the loop that owns what it reads: the core's tables change between two callbacks
    only."""

    def __init__(self, collector: Collector, loop: asyncio.AbstractEventLoop) -> None:
        self._collector = collector
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """Called by a thread of the metrics' server. Raises TimeoutError when the loop stands still."""
        yield from asyncio.run_coroutine_threadsafe(self._on_loop(), self._loop).result(COLLECT_TIMEOUT_S)

    async def _on_loop(self) -> list[Metric]:
        return list(self._collector.collect())
