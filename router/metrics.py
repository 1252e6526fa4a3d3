"""The router's Prometheus metrics. Each scrape reads the core's state; events are counted as they happen."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from router.core.concurrency_limit import ConcurrencyLimit
from router.core.decisions import Decision, Granted, ProbeGeneration, Refused
from router.core.dispatcher import Dispatcher
from router.core.fleet import Fleet
from router.core.pool import PoolState
from router.core.reasons import Reason
from router.core.replica import Health, Replica
from router.core.shed_rate import ShedRates
from router.core.speculation import SpeculationGovernor

DECISION_BUCKETS_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 50e-3)
QUEUE_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COLLECT_TIMEOUT_S = 10.0
PREFIX = "slipstream_router_"
# name after PREFIX, help, value
OF_REPLICAS: tuple[tuple[str, str, Callable[[Fleet, Replica], float | None]], ...] = (
    ("leases", "Active leases of the replica.", lambda _, one: one.leases),
    (
        "replica_healthy",
        "1 while the replica answers health probes; 0 after a missed probe.",
        lambda _, one: one.health is Health.HEALTHY,
    ),
    (
        "max_concurrency",
        "Maximum number of leases of the replica, as learnt, reported by the engine, or set by its pool.",
        lambda _, one: one.max_concurrency,
    ),
    (
        "load_stale",
        "1 while the replica's load reports are missing or do not change, and the router places by its own leases.",
        lambda _, one: one.load_is_stale,
    ),
    (
        "kv_events_silent",
        "1 while the replica computes prompts without sending KV events; for replicas whose events the router follows.",
        lambda _, one: one.kv_is_silent if one.follows_kv else None,
    ),
    (
        "foreign_requests",
        "Requests that the engine reports in addition to the router's leases.",
        lambda _, one: one.foreign,
    ),
    (
        "prefill_tokens",
        "Prompt tokens of granted requests that have no first token yet.",
        lambda _, one: one.prefill_tokens,
    ),
    (
        "headroom_tokens",
        "KV tokens for which the replica still has room, if it reports them.",
        lambda _, one: one.headroom_tokens,
    ),
    (
        "kv_used_ratio",
        "Share of the replica's KV memory that running requests hold, according to its last report.",
        lambda _, one: one.kv_used_ratio,
    ),
    (
        "slowness",
        "Learnt time to first token of the replica relative to its pool; above 1 means slower.",
        lambda _, one: one.ratio.value,
    ),
    ("breaker_open", "1 while the replica's circuit breaker keeps requests away.", lambda _, one: one.breaker.open),
    ("adapters", "LoRA adapters that the replica is known to have loaded.", lambda _, one: len(one.adapters.names)),
    (
        "prefix_blocks",
        "Prompt blocks that the replica is assumed to have cached.",
        lambda fleet, one: fleet.blocks_of(one),
    ),
)
OF_LEARNT: tuple[tuple[str, str, Callable[[ConcurrencyLimit], float]], ...] = (
    (
        "answer_stretch",
        "Time of the replica's recent responses relative to undisturbed ones, if its limit is learnt.",
        lambda one: one.stretch,
    ),
    (
        "marginal_stretch",
        "Effect of one more request at the replica, if its limit is learnt: 0 if it does not slow the others, 1 if "
        "it takes all its time from them.",
        lambda one: one.marginal_stretch,
    ),
)
OF_POOLS: tuple[tuple[str, str, Callable[[PoolState], float]], ...] = (
    ("queued", "Lease requests waiting for a slot.", lambda one: len(one.queue)),
    (
        "predicted_cached_tokens_total",
        "Prompt tokens expected to be cached.",
        lambda one: one.cache_reports.predicted_tokens,
    ),
    (
        "reported_cached_tokens_total",
        "Prompt tokens that engines reported as cached.",
        lambda one: one.cache_reports.reported_tokens,
    ),
    (
        "retractions_total",
        "Requests that engines evicted from memory and must compute again, if their load reports count them.",
        lambda one: one.cache_reports.retractions,
    ),
    (
        "draft_tokens_total",
        "Tokens that engines drafted, if their load reports count them and their responses do not (TensorRT-LLM).",
        lambda one: one.cache_reports.draft_tokens,
    ),
    (
        "accepted_draft_tokens_total",
        "Accepted tokens among those of slipstream_router_draft_tokens_total.",
        lambda one: one.cache_reports.accepted_draft_tokens,
    ),
)
OF_GOVERNORS: tuple[tuple[str, str, Callable[[SpeculationGovernor], float]], ...] = (
    (
        "speculation_on",
        "1 while the pool's load allows its engines to draft; only for pools with governed speculation.",
        lambda one: one.on,
    ),
    (
        "speculation_load",
        "Requests per usable replica, by which the governor decides whether engines draft.",
        lambda one: one.load,
    ),
    ("speculation_switches_total", "Number of times that drafting was turned on or off.", lambda one: one.switches),
)
OF_TIERS: tuple[tuple[str, str, Callable[[ShedRates], Mapping[str, float]]], ...] = (
    ("asks_total", "Lease requests answered, granted or refused.", lambda sheds: sheds.asks),
    ("refusals_total", "Lease requests refused for lack of room or engines.", lambda sheds: sheds.refusals),
    (
        "over_share_refusals_total",
        "Lease requests refused for lack of room because their organization requested more than its share.",
        lambda sheds: sheds.over_share,
    ),
    (
        "yielding_refusals_total",
        "Refused lease requests of the classes that yield (offline and the deployment's own work). The other "
        "counters exclude them.",
        lambda sheds: sheds.yielding,
    ),
    ("shed_ratio", "Share of refused lease requests among about the last 2,000.", lambda sheds: sheds.ratio),
)
OF_ROUTER: tuple[tuple[str, str, Callable[[Dispatcher], float]], ...] = (
    ("gateways", "Connected gateways.", lambda core: len(core.connections)),
    ("desired_state_version", "Version of the desired state that the router uses.", lambda core: core.fleet.version),
    ("shed_objective", "Upper objective of the shed ratio.", lambda core: core.config.shed_objective),
)


class RouterMetrics:
    """The metrics of one router. Each router has a registry, so that a process can have several (tests, simulator)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.registry = CollectorRegistry()
        counter = functools.partial(Counter, registry=self.registry)
        histogram = functools.partial(Histogram, registry=self.registry)
        self.grants = counter(PREFIX + "grants", "Leases granted.", ["replica"])
        self.sheds = counter(PREFIX + "sheds", "Lease requests refused, by error code and reason.", ["code", "reason"])
        self.generation_probes = counter(
            PREFIX + "generation_probes",
            "Generation probes that the router sent to a replica because requests failed there.",
            ["replica"],
        )
        self.queue_seconds = histogram(
            PREFIX + "queue_seconds", "Time that granted lease requests waited for a slot.", buckets=QUEUE_BUCKETS_S
        )
        self.decision_seconds = histogram(
            PREFIX + "decision_seconds",
            "Time to decide one lease request, without reading and writing messages.",
            buckets=DECISION_BUCKETS_S,
        )
        self.streams_closed = counter(
            PREFIX + "streams_closed",
            "Gateway connections that the router closed, for example because the gateway did not read or had opened a "
            "newer one.",
        )
        self.registry.register(_CoreCollector(dispatcher))

    def decided(self, decision: Decision) -> None:
        """Count one decision."""
        if isinstance(decision, Granted):
            self.grants.labels(decision.lease.engine.replica_id).inc()
            self.queue_seconds.observe(decision.lease.queued_s)
        elif isinstance(decision, Refused) and decision.cause is not Reason.NOT_IDLE:
            self.sheds.labels(decision.code, decision.cause.value).inc()
        elif isinstance(decision, ProbeGeneration):
            self.generation_probes.labels(decision.replica_id).inc()


class _CoreCollector(Collector):
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterator[Metric]:
        fleet, sheds = self._dispatcher.fleet, self._dispatcher.placer.sheds
        for name, meaning, of_replica in OF_REPLICAS:
            rows = [(one.pool, one.id, of_replica(fleet, one)) for one in fleet.replicas.values()]
            yield _family(name, meaning, ("pool", "replica"), rows)
        learnt = [(one, limit) for one in fleet.replicas.values() if (limit := one.learnt) is not None]
        for name, meaning, of_limit in OF_LEARNT:
            rows = [(one.pool, one.id, of_limit(limit)) for one, limit in learnt]
            yield _family(name, meaning, ("pool", "replica"), rows)
        moves = [(one.pool, one.id, move.value, times) for one, limit in learnt for move, times in limit.moves.items()]
        yield _family("limit_moves_total", "Changes of learnt limits, by reason.", ("pool", "replica", "reason"), moves)
        for name, meaning, of_pool in OF_POOLS:
            yield _family(name, meaning, ("pool",), [(one.name, of_pool(one)) for one in fleet.pools.values()])
        governed = [(one.name, one.governor) for one in fleet.pools.values() if one.governor is not None]
        for name, meaning, of_governor in OF_GOVERNORS:
            yield _family(name, meaning, ("pool",), [(pool, of_governor(governor)) for pool, governor in governed])
        for name, meaning, by_tier in OF_TIERS:
            yield _family(name, meaning, ("tier",), [(tier, by_tier(sheds).get(tier, 0)) for tier in sheds.asks])
        for name, meaning, of_router in OF_ROUTER:
            yield _family(name, meaning, (), [(of_router(self._dispatcher),)])


def _family(name: str, meaning: str, labels: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Metric:
    """A metric of these rows: the labels' values, followed by the metric's value, or None to omit the row."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(PREFIX + name, meaning, labels=labels)
    for *label_values, value in rows:
        if value is not None:
            family.add_metric(label_values, float(value))
    return family


class LoopCollector(Collector):
    """Runs another collector on the event loop that owns its data, so that the data does not change meanwhile."""

    def __init__(self, collector: Collector, loop: asyncio.AbstractEventLoop) -> None:
        self._collector = collector
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """Collect from a thread of the metrics server. Raises TimeoutError if the loop is blocked."""
        yield from asyncio.run_coroutine_threadsafe(self._on_loop(), self._loop).result(COLLECT_TIMEOUT_S)

    async def _on_loop(self) -> list[Metric]:
        return list(self._collector.collect())
