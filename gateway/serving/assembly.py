"""Builds the request pipeline. A feature that only watches requests is one argument of `subscribe` here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from contracts.desired_state import KvObjective
from engines.http.engine_connections import EngineConnections
from gateway.observability.file_metrics import FileMetrics
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.adapter_loader import AdapterLoader
from gateway.serving.background import BackgroundAttempts
from gateway.serving.cascade import Cascades
from gateway.serving.collaborators import CompletionTexts, Drivers, PrefixLog, Router, UsageJournal, UsageLimiter
from gateway.serving.config import ServingConfig
from gateway.serving.continuations import Continuations
from gateway.serving.file_history import FileHistory
from gateway.serving.full_engines import FullEngines
from gateway.serving.generator import Generator
from gateway.serving.idle_timeout import IdleTimeouts
from gateway.serving.observers import Observers, RequestObserver
from gateway.serving.pipeline import RequestPipeline
from gateway.serving.request_costs import RequestCosts
from gateway.serving.request_limits import RequestLimits
from gateway.serving.request_metrics import RequestMetrics
from gateway.serving.samples import CompletionSampling, PrefixSampling
from gateway.serving.shadow_copies import Shadow, ShadowCopies
from gateway.serving.single_shot import SingleShot
from gateway.serving.warm_ups import WarmUps
from gateway.supersession.supersession import Supersession


class Features(NamedTuple):
    """The parts of serving that watch requests or change the path of some."""

    metrics: GatewayMetrics
    file_metrics: FileMetrics
    kv_objective: Callable[[str], KvObjective]
    """Returns a pool's objective by the pool's name."""
    traces: RequestObserver
    prefixes: PrefixLog
    texts: CompletionTexts
    shadow: Shadow
    supersession: Supersession
    cascades: Cascades


class Serving:
    """The pipelines and their background work."""

    def __init__(
        self,
        config: ServingConfig,
        limiter: UsageLimiter,
        costs: RequestCosts,
        journal: UsageJournal,
        router: Router,
        connections: EngineConnections,
        drivers: Drivers,
        idle_timeouts: IdleTimeouts,
        features: Features,
    ) -> None:
        metrics = features.metrics
        self.adapters = AdapterLoader(connections, metrics, config.adapter_load_timeout_s)
        self.continuations = Continuations(metrics, config.client_stall_timeout_s)
        self.observers = observers = Observers(metrics.observer_failed)
        self.generator = Generator(config, connections, drivers, self.adapters, router, observers)
        self.background = BackgroundAttempts(journal, router, self.generator)
        self.warm_ups = WarmUps(self.background.run, idle_timeouts, features.file_metrics)
        self.shadow_copies = ShadowCopies(self.background.run, idle_timeouts, features.shadow)
        observers.subscribe(
            RequestMetrics(metrics),
            features.traces,
            FullEngines(),
            FileHistory(features.file_metrics, features.kv_objective),
            PrefixSampling(features.prefixes),
            CompletionSampling(features.texts),
            self.warm_ups,
            self.shadow_copies,
        )
        limits = RequestLimits(limiter, costs, features.supersession, config.abort_drain_s)
        self.pipeline = RequestPipeline(
            config,
            limits,
            journal,
            router,
            self.generator,
            features.supersession,
            self.continuations,
            features.cascades,
            observers,
        )
        pooling_observers = Observers(metrics.observer_failed)
        pooling_observers.subscribe(RequestMetrics(metrics), features.traces, FullEngines())
        self.pooling = RequestPipeline(
            config,
            limits,
            journal,
            router,
            SingleShot(config, connections, drivers),
            features.supersession,
            self.continuations,
            features.cascades,
            pooling_observers,
        )
        """Serves requests without output, which use only the limits, the journal and a lease."""

    async def stop(self) -> None:
        """End background work, and drop the state kept for later requests."""
        await self.warm_ups.stop()
        await self.shadow_copies.stop()
        self.continuations.stop()
        await self.adapters.stop()
