"""Loads the LoRA adapters that requests need into engines, each once however many requests wait for it."""

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
"""Pause after an engine refused to load an adapter: each attempt evicts another adapter."""


class AdapterLoader:
    """One per gateway process. Two gateways may load the same adapter: the engine reports that it has it."""

    def __init__(
        self,
        connections: EngineConnections,
        metrics: GatewayMetrics,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """timeout_s: for loading one. clock: monotonic seconds."""
        self._connections = connections
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._clock = clock
        self._refused_until: dict[tuple[str, str], float] = {}
        self._loading: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By engine and the adapter's name there."""

    async def require(self, adapter: Adapter | None, lease: Lease, driver: Driver) -> None:
        """Return when the lease's engine holds the adapter, as far as the router knew, or as it has just been loaded.

        Raises AdapterUnavailable when it cannot be loaded, and the connection's errors. A cancelled caller ends only
        its own wait.
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
            # read even if no caller waits any more, so that asyncio does not report it as lost
            self._metrics.adapter_loaded(failed=loading.exception() is not None)

    async def _load(self, adapter: Adapter, engine: Engine, driver: Driver, evicted: str) -> None:
        load = driver.load_adapter(adapter.engine_name, adapter.path)
        if load is None:
            raise AdapterUnavailable(f"The engines of '{adapter.model}' take no adapters.")
        await self._unload(evicted, engine, driver)
        status, body = await self._connections.fetch(engine.url, load, self._timeout_s, pool_name=engine.pool)
        said = driver.load_refusal(status, body)
        if said is not None:
            logger.warning("adapter %s cannot be loaded by %s: %s", adapter.id, engine.replica_id, said[:500])
            self._refused_until[engine.url, adapter.engine_name] = self._clock() + REFUSED_S
            raise _not_loaded(adapter, REFUSED_S)
        logger.info("adapter %s is loaded by %s", adapter.id, engine.replica_id)

    async def _unload(self, name: str, engine: Engine, driver: Driver) -> None:
        """The next load shows whether the engine has room afterwards."""
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
