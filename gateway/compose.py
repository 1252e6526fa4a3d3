"""Builds one gateway instance: starts every part in order and stops them in reverse order.

The order matters: the journal recovers before the gateway admits a request, and closes after every part that writes to
it. The gateway starts even if the database, Valkey or the router is unreachable, and /readyz names the missing part. It
does not start if the database was never migrated or refuses the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable

from prometheus_client import CollectorRegistry

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.desired_state import DesiredState
from contracts.errors import ConfigError
from contracts.metrics import metrics_server
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from engines.tokenizer.json_value import JsonBounds
from gateway.auth.keyring import Keyring
from gateway.autocomplete.event_rate import EventRate
from gateway.autocomplete.report_window import ReportWindow
from gateway.autocomplete.store import EventStore
from gateway.autocomplete.text_store import TextStore
from gateway.config import GatewayConfig
from gateway.desired.reports import Reporter
from gateway.desired.store import DesiredStateStore, last_pools
from gateway.instance import InstanceConfig
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.spending import LedgerSpending
from gateway.metering.journal.engine_usage import EngineUsage
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.orphan_journals import OrphanJournals
from gateway.metering.journal.recovery import Recovery
from gateway.metering.ledger.drift_watch import DriftWatch
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from gateway.metering.pricing.prices import PriceBook
from gateway.observability.cascade_metrics import CascadeMetrics
from gateway.observability.file_metrics import FileMetrics
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.observer import PrefixObserver
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from gateway.responses.background import BackgroundResponses
from gateway.responses.conversations import ConversationStore
from gateway.responses.event_streams import EventStreams
from gateway.responses.reached import StorePool
from gateway.responses.store import ResponseStore
from gateway.services import Services, Surroundings
from gateway.serving.access_log import AccessLog
from gateway.serving.assembly import Features, Serving
from gateway.serving.cascade import Cascades
from gateway.serving.idle_timeout import IdleTimeouts
from gateway.serving.model_catalog import ModelCatalog
from gateway.serving.request import Salts
from gateway.serving.request_costs import RequestCosts
from gateway.serving.request_spans import RequestSpans
from gateway.serving.shadow_copies import Shadow
from gateway.serving.trace import Traces
from gateway.shadow.metrics import ShadowMetrics
from gateway.shadow.sampling import ShadowSampler
from gateway.shadow.store import PairStore
from gateway.stream_audit.endpoint import StreamAudits
from gateway.supersession.lineage import Digests
from gateway.supersession.other_gateways import OtherGateways
from gateway.supersession.supersession import Supersession
from router.client import RouterClient
from storage.channels import PRICES_CHANNEL
from storage.engine import lazy_pool
from telemetry.config import TracingConfig
from telemetry.sampler import Sampler
from telemetry.start import running_tracing

REFUSED_PAUSE_S = 1.0
LONGEST_REFUSED_PAUSE_S = 30.0
VERSIONS_BACK = 20
"""How many earlier desired states a starting gateway tries before it uses only the settings."""

logger = logging.getLogger(__name__)

POOL_CONNECTIONS = 4
SHIP_ON_STOP_S = 5.0
ROUTER_ON_START_S = 5.0


@contextlib.asynccontextmanager
async def running_services(
    config: GatewayConfig, place: InstanceConfig, surroundings: Surroundings
) -> AsyncIterator[Services]:
    """Run a gateway's parts within the block. Raises ConfigError if the gateway cannot start."""
    registry = CollectorRegistry()
    metrics, metering, limits_metrics = GatewayMetrics(registry), MeteringMetrics(registry), LimitsMetrics(registry)
    async with contextlib.AsyncExitStack() as stack:
        tracing = await stack.enter_async_context(
            running_tracing(place.tracing, "gateway", registry, instance=place.instance)
        )
        stack.enter_context(metrics_server(registry, config.metrics, "gateway.metrics"))
        keys = EngineKeys(lambda: place.token, os.environ)
        keys.require(place.pools)
        salts = Salts(place.pepper)
        connections = EngineConnections(keys, sender=salts.deployment)
        stack.push_async_callback(connections.close)
        pool = await lazy_pool(
            place.database_url, size=POOL_CONNECTIONS, connect_timeout_s=5.0, name="slipstream-gateway"
        )
        stack.callback(pool.terminate)

        # Recovery asks engines about attempts that a crash left open, before the gateway follows the desired state. The
        # settings are newer than the last row, so their pools replace its pools.
        keys.follow(await last_pools(pool, place.database_url, config.desired.timeout_s))
        keys.follow(place.pools)
        journal = Journal(place.journal_folder / place.instance, config.metering, metering)
        await journal.start()
        stack.push_async_callback(journal.stop)
        ledger = Ledger(pool, config.metering.ship_timeout_s)
        engine_usage = EngineUsage(connections, config.metering.ask_timeout_s)
        await Recovery(journal, engine_usage, config.metering, metering).resolve()
        shipper = Shipper(journal, ledger, config.metering, metering)
        limiter = Limiter(
            place.valkey_url,
            config.limits,
            limits_metrics,
            instance=place.instance,
            spending=LedgerSpending(pool, surroundings.crossing),
            drain=shipper.drain,
            currency=place.currency,
        )
        shipper.start()
        stack.push_async_callback(_leave, limiter, journal)
        stack.push_async_callback(shipper.stop)
        stack.push_async_callback(shipper.drain, SHIP_ON_STOP_S)
        adoption = OrphanJournals(
            place.journal_folder / place.instance,
            engine_usage,
            ledger,
            config.metering,
            metering,
            on_emptied=limiter.adopted,
        )
        adoption.start()
        stack.push_async_callback(adoption.stop)
        drift = DriftWatch(pool, metering)
        drift.start()
        stack.push_async_callback(drift.stop)

        completion_events = EventStore(pool, metrics, config.autocomplete.flush_s)
        completion_events.start()
        stack.push_async_callback(completion_events.stop)  # stops after the traces, which its reports join
        traces = Traces(pool, metrics, config.trace_flush_s)
        traces.start()
        stack.push_async_callback(traces.stop)
        observer = PrefixObserver(PrefixDigests(place.pepper), config.prefixes.memory_bytes)
        prefixes = PrefixSamples(pool, metrics, observer, config.prefixes)
        prefixes.start()
        stack.push_async_callback(prefixes.stop)
        completion_texts = TextStore(pool, metrics, config.autocomplete.flush_s)
        completion_texts.start()
        stack.push_async_callback(completion_texts.stop)
        shadow_metrics = ShadowMetrics(registry)
        pairs = PairStore(pool, shadow_metrics, config.shadow.flush_s)
        pairs.start()
        stack.push_async_callback(pairs.stop)
        prices = PriceBook(pool)
        keyring = Keyring(place.database_url, place.pepper, config.auth, also={PRICES_CHANNEL: prices.announced})
        await keyring.start()
        stack.push_async_callback(keyring.stop)
        await prices.start()
        stack.push_async_callback(prices.stop)
        await limiter.start()
        stack.push_async_callback(limiter.stop)
        router = RouterClient(config.router, place.router_token, place.instance)
        await router.start()
        stack.push_async_callback(router.stop)
        digests = Digests(place.pepper)
        peers = OtherGateways(place.valkey_url, config.limits.key_prefix, config.limits.call_timeout_s, digests)
        supersession = Supersession(digests, peers)
        peers.on_told = supersession.told
        await peers.start()
        stack.push_async_callback(peers.stop)
        idle_timeouts = IdleTimeouts()
        await stack.enter_async_context(idle_timeouts.task)

        cascade_metrics = CascadeMetrics(registry)
        catalog = ModelCatalog(
            config.tokenizing, JsonBounds(config.requests.max_depth, config.requests.max_values), cascade_metrics
        )
        stack.callback(catalog.close)
        reporter = Reporter(pool, place.instance, config.desired.timeout_s)
        reporter.start()
        stack.push_async_callback(reporter.stop)
        follower = DesiredStateFollower(catalog, router, keys, reporter, lambda version: desired.before(version))
        if place.models:  # invalid models stop this start before other gateways see them
            await catalog.load(DesiredState(version=0, models=place.models, pools=place.pools))
        desired = DesiredStateStore(place.database_url, config.desired, on_change=follower.changed)
        await desired.start()
        stack.push_async_callback(desired.stop)
        stack.push_async_callback(follower.stop)
        seeding = surroundings.seeding(desired)
        await seeding.start()
        stack.push_async_callback(seeding.stop)
        await follower.settled()
        await router.wait_connected(ROUTER_ON_START_S)

        cascades = Cascades(catalog, cascade_metrics)
        serving = Serving(
            config,
            limiter,
            RequestCosts(prices),
            journal,
            router,
            connections,
            catalog.driver,
            idle_timeouts,
            Features(
                metrics=metrics,
                file_metrics=FileMetrics(registry),
                kv_objective=catalog.kv_objective,
                traces=traces,
                prefixes=prefixes,
                texts=completion_texts,
                shadow=Shadow(
                    config.shadow, ShadowSampler(place.pepper), lambda: router.replicas, pairs, shadow_metrics
                ),
                supersession=supersession,
                cascades=cascades,
            ),
        )
        stack.push_async_callback(serving.stop)

        store_pool = StorePool(pool)
        event_streams = EventStreams(store_pool)
        stack.push_async_callback(event_streams.stop)

        services = Services(
            keyring=keyring,
            catalog=catalog,
            pipeline=serving.pipeline,
            pooling=serving.pooling,
            idle_timeouts=idle_timeouts,
            limiter=limiter,
            completion_events=completion_events,
            event_rate=EventRate(config.autocomplete.events_per_second),
            report_window=ReportWindow(place.trace_retention_days),
            responses=ResponseStore(store_pool),
            conversations=ConversationStore(store_pool),
            background=BackgroundResponses(store_pool),
            event_streams=event_streams,
            stream_audits=StreamAudits(limiter, config.stream_audit),
            metrics=metrics,
            traces=traces,
            salts=salts,
            cascades=cascades,
            spans=None if tracing is None else RequestSpans(tracing, _sampler(place.tracing)),
            access_log=AccessLog() if place.logging.access else None,
            checks={
                "database": lambda: keyring.trusted and seeding.done,
                "keys": lambda: keyring.trusted,
                "limits": lambda: limiter.connected or config.limits.when_unavailable == "local",
                "journal": lambda: journal.healthy,
                "router": lambda: router.connected,
                "models": lambda: bool(catalog.models),
            },
            replicas=lambda: router.replicas,
        )
        yield services


def _sampler(config: TracingConfig) -> Sampler:
    return Sampler(config.sample_ratio, trust_client=config.trust_client_sampling)


async def _leave(limiter: Limiter, journal: Journal) -> None:
    """Record that budget recounts need not wait for this instance, if its journal is fully shipped."""
    if journal.backlog_rows == 0 and journal.open_attempts == 0:
        await limiter.left_empty(journal.instance)


class DesiredStateFollower:
    """Loads each new desired state into this gateway's model catalog and then publishes it to the router, in order."""

    def __init__(
        self,
        catalog: ModelCatalog,
        router: RouterClient,
        keys: EngineKeys,
        reporter: Reporter,
        before: Callable[[int], Awaitable[DesiredState | None]],
    ) -> None:
        """before: returns the newest state before a version; None if there is none or it cannot be read."""
        self._before = before
        self._in_force = False
        """Whether a stored version is in force, rather than only the settings' models."""
        self._catalog = catalog
        self._router = router
        self._keys = keys
        self._reporter = reporter
        self._newest: DesiredState | None = None
        """The newest version, until it is in force."""
        self._arrived = asyncio.Event()
        self._tried = asyncio.Event()
        self._task = BackgroundTask("desired state", self._load)

    def changed(self, state: DesiredState) -> None:
        """Load a newer state in the background, and skip states that are superseded meanwhile. A state that this
        process cannot load is retried after pauses, because a file that it names may arrive later."""
        self._newest = state
        self._keys.learn(state.pools)  # at once, because another gateway may already have published the state
        self._tried.clear()
        self._arrived.set()
        self._task.start()

    async def settled(self) -> None:
        """Return once the newest known state is loaded or refused, or has failed once. A failure is retried."""
        if self._newest is not None:
            await self._tried.wait()

    async def stop(self) -> None:
        """Cancel a running load."""
        await self._task.stop()

    async def _load(self) -> None:
        refused, backoff = "", Backoff(REFUSED_PAUSE_S, LONGEST_REFUSED_PAUSE_S)
        while (state := self._newest) is not None:
            self._arrived.clear()
            try:
                refusal = await self._take_up(state)
                if refusal and not self._in_force:
                    await self._fall_back(state.version)
            finally:
                if state is self._newest:
                    self._tried.set()
            if refusal and refusal != refused:
                logger.error(refusal)
            refused = refusal
            if state is not self._newest:
                backoff.reset()
            elif not refusal:
                self._newest = None
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), backoff.next_s())

    async def _take_up(self, state: DesiredState) -> str:
        """Put the version in force. Returns the reason for a refusal; empty if the version is in force."""
        try:
            await self._put_in_force(state)
        except ConfigError as error:
            self._reporter.refuses(state.version, error.message)
            number = f"desired state {state.version} (models and pools)"
            return f"{number} is refused and will be retried; the version in force stays: {error.message}"
        return ""

    async def _fall_back(self, version: int) -> None:
        """Put the newest earlier version that loads in force, so that a restart does not lose its models."""
        for _ in range(VERSIONS_BACK):
            state = await self._before(version)
            if state is None:
                return
            version = state.version
            with contextlib.suppress(ConfigError):
                await self._put_in_force(state)
                return

    async def _put_in_force(self, state: DesiredState) -> None:
        """Raises ConfigError if this gateway cannot serve the state."""
        self._keys.require(state.pools)
        await self._catalog.load(state)
        self._in_force = True
        self._keys.follow(state.pools)
        self._router.publish(state)
        self._reporter.serves(state.version)
        names = ", ".join(model.name for model in state.models) or "none"
        logger.info("desired state %d is in force; models: %s", state.version, names)
