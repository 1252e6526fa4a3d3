"""Loads the LoRA adapters that requests need into engines. Requests that need the same adapter share one load."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from contracts.adapter import Adapter
from contracts.errors import AdapterUnavailable, ServiceError
from contracts.lease import Engine, Lease
from engines.drivers.base import Driver
from engines.http.engine_connections import EngineConnections
from gateway.observability.metrics import GatewayMetrics

logger = logging.getLogger(__name__)
REFUSED_S = 10.0
"""Pause after an engine refused to load an adapter, because each attempt evicts another adapter."""


class AdapterLoader:
    """Loads adapters for one gateway process. If two gateways load the same one, the engine reports that it has it."""

    def __init__(
        self,
        connections: EngineConnections,
        metrics: GatewayMetrics,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """timeout_s: the limit for one load. clock: monotonic seconds."""
        self._connections = connections
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._clock = clock
        self._refused_until: dict[tuple[str, str], float] = {}
        self._loading: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Running loads by the engine's URL and its name for the adapter."""

    async def require(self, adapter: Adapter | None, lease: Lease, driver: Driver) -> None:
        """Return once the lease's engine has the adapter: the router expects it there, or this call has loaded it.

        Raises AdapterUnavailable if the adapter cannot be loaded, and the connection's errors. Cancelling a caller ends
        only its own wait.
        """
        if adapter is None or not lease.load_adapter:
            return
        key = lease.engine.url, adapter.engine_name
        loading = self._loading.get(key)
        if loading is None:
            self._require_untried(adapter, key)
            loading = asyncio.create_task(self._load(adapter, lease.engine, driver, lease.evict_adapter))
            self._loading[key] = loading
            loading.add_done_callback(lambda loading: self._ended(key, loading))
        await asyncio.shield(loading)

    def _require_untried(self, adapter: Adapter, key: tuple[str, str]) -> None:
        now = self._clock()
        self._refused_until = {each: until for each, until in self._refused_until.items() if until > now}
        if key in self._refused_until:
            raise _not_loaded(adapter, self._refused_until[key] - now)

    async def stop(self) -> None:
        """Cancel running loads."""
        for loading in list(self._loading.values()):
            loading.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    def _ended(self, key: tuple[str, str], loading: asyncio.Task[None]) -> None:
        del self._loading[key]
        if not loading.cancelled():
            # read even if no caller is left, so that asyncio does not log an unretrieved exception
            self._metrics.adapter_loaded(failed=loading.exception() is not None)

    async def _load(self, adapter: Adapter, engine: Engine, driver: Driver, evicted: str) -> None:
        load = driver.load_adapter(adapter.engine_name, adapter.path)
        if load is None:
            raise AdapterUnavailable(f"The engines of '{adapter.model}' do not support adapters.")
        await self._unload(evicted, engine, driver)
        status, body = await self._connections.fetch(engine.url, load, self._timeout_s, pool_name=engine.pool)
        refusal = driver.load_refusal(status, body)
        if refusal is not None:
            logger.warning("adapter %s cannot be loaded by %s: %s", adapter.id, engine.replica_id, refusal[:500])
            self._refused_until[engine.url, adapter.engine_name] = self._clock() + REFUSED_S
            raise _not_loaded(adapter, REFUSED_S)
        logger.info("adapter %s is loaded by %s", adapter.id, engine.replica_id)

    async def _unload(self, name: str, engine: Engine, driver: Driver) -> None:
        """A failure is only logged, because the next load shows whether the engine has room."""
        unload = driver.unload_adapter(name) if name else None
        if unload is None:
            return
        try:
            status, _ = await self._connections.fetch(engine.url, unload, self._timeout_s, pool_name=engine.pool)
            logger.info("adapter %s is unloaded by %s: status %d", name, engine.replica_id, status)
        except ServiceError as error:
            logger.warning("engine %s did not unload adapter %s: %s", engine.replica_id, name, error)


def _not_loaded(adapter: Adapter, retry_after_s: float) -> AdapterUnavailable:
    return AdapterUnavailable(f"The adapter '{adapter.public_name}' could not be loaded.", retry_after_s=retry_after_s)
