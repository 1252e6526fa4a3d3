"""Polls every replica for health and load, and reports to the core, which has the thresholds; the intervals are here.

Each replica has one task. An unhealthy replica is polled more often, so that it is back in service a fraction of a
second after it recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec

from contracts.background_task import BackgroundTask
from contracts.errors import ConnectionsExhausted, SlipstreamError
from engines.drivers.base import Driver, EngineRequest, Load
from router.config import RouterConfig
from router.core.events import ReplicaPolled

logger = logging.getLogger(__name__)

HTTP_OK = 200
REFUSED = (401, 403)


class Fetch(Protocol):
    """The part of `EngineConnections` that polling needs."""

    async def fetch(
        self, url: str, request: EngineRequest, timeout_s: float, *, pool_name: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of the response. Raises SlipstreamError if none arrives in time."""
        ...


class Target(msgspec.Struct, frozen=True):
    """The address of a replica, its dialect, and the pool whose key it needs."""

    url: str
    driver: str
    pool: str = ""


class _Watch(msgspec.Struct, frozen=True):
    """The polling of one replica."""

    target: Target
    wanted_now: asyncio.Event
    task: BackgroundTask


class HealthPoller:
    """Polls the replicas. report: called with the outcome of every poll, on the event loop."""

    def __init__(
        self,
        config: RouterConfig,
        connections: Fetch,
        driver_of: Callable[[str], Driver],
        report: Callable[[ReplicaPolled], None],
        own_engines: Collection[str] = (),
    ) -> None:
        """own_engines: URLs of engines on this machine that run under this account. They receive no key while a program
        of another account listens on their port."""
        self._config = config
        self._own_engines = frozenset(own_engines)
        self._connections = connections
        self._driver_of = driver_of
        self._report = report
        self._watches: dict[str, _Watch] = {}
        self._no_load: dict[Target, str] = {}
        """Reasons why replicas return no load report; each is logged once."""

    def follow(self, targets: Mapping[str, Target]) -> None:
        """Set the replicas to poll; new ones are polled at once."""
        for replica_id in [known for known, watch in self._watches.items() if targets.get(known) != watch.target]:
            watch = self._watches.pop(replica_id)
            watch.task.cancel()
            self._no_load.pop(watch.target, None)
        for replica_id, target in targets.items():
            if replica_id not in self._watches:
                wanted_now = asyncio.Event()
                polling = functools.partial(self._poll, replica_id, target, wanted_now)
                watch = self._watches[replica_id] = _Watch(
                    target, wanted_now, BackgroundTask(f"poll {replica_id}", polling)
                )
                watch.task.start()

    def poll_now(self, replica_id: str) -> None:
        """Poll a replica without waiting for its turn; a poll that is already running does not count."""
        watch = self._watches.get(replica_id)
        if watch is not None:
            watch.wanted_now.set()

    async def stop(self) -> None:
        """End all polling."""
        watches, self._watches = self._watches, {}
        await asyncio.gather(*(watch.task.stop() for watch in watches.values()))

    async def _poll(self, replica_id: str, target: Target, wanted_now: asyncio.Event) -> None:
        config = self._config
        logged_detail = ""
        while True:
            wanted_now.clear()
            try:
                detail, load = await self._probe(target)
            except (
                ConnectionsExhausted
            ):  # this process lacks resources (logged elsewhere), so the replica was not polled
                self._report(ReplicaPolled(replica_id, False, asked=False))
                await self._pause(config.recovery_interval_s, wanted_now)
                continue
            healthy = not detail
            if healthy and wanted_now.is_set():
                continue  # a fault was reported during this poll, whose answer may be older than the fault
            if detail != logged_detail:
                logged_detail = detail
                logger.log(
                    logging.WARNING if detail else logging.INFO, "replica %s: %s", replica_id, detail or "healthy"
                )
            self._report(ReplicaPolled(replica_id, healthy, detail, load, bool(self._no_load.get(target))))
            await self._pause(config.poll_interval_s if healthy else config.recovery_interval_s, wanted_now)

    async def _pause(self, pause_s: float, wanted_now: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            # jitter keeps a thousand replicas from being polled at the same time
            async with asyncio.timeout(pause_s * random.uniform(0.9, 1.1)):  # noqa: S311  not a secret
                await wanted_now.wait()

    async def _probe(self, target: Target) -> tuple[str, Load | None]:
        """The replica's fault ("" for none) and its load. Raises ConnectionsExhausted."""
        timeout_s = self._config.probe_timeout_s
        try:
            driver = self._driver_of(target.driver)
            # before the key leaves this process
            if target.url in self._own_engines and (fault := await _port_fault(target.url)):
                return fault, None
            status, _ = await self._connections.fetch(target.url, driver.health(), timeout_s, pool_name=target.pool)
            if status in REFUSED:
                return f"it refuses our key ({status}); see api_key_file and api_key_env of pool {target.pool!r}", None
            if status != HTTP_OK:
                return f"health check answered {status}", None
            return "", await self._load(target, driver)
        except ConnectionsExhausted:
            raise
        except SlipstreamError as error:
            return str(error), None
        except Exception:
            # a defect in a driver must fail this poll, not end the polling
            logger.exception("polling %s failed", target.url)
            return "the poll itself failed, see the log", None

    async def _load(self, target: Target, driver: Driver) -> Load | None:
        """The replica's load report; None if it has none or it cannot be read, which does not affect its health."""
        request = driver.load()
        if request is None:
            return None
        load, reason = None, ""
        try:
            status, body = await self._connections.fetch(
                target.url, request, self._config.probe_timeout_s, pool_name=target.pool
            )
            if status == HTTP_OK:
                load = driver.parse_load(body)
            else:
                reason = f"it refuses our key ({status})" if status in REFUSED else f"it answered {status}"
        except ConnectionsExhausted:
            raise
        except SlipstreamError as error:
            reason = error.message
        if reason != self._no_load.get(target, ""):
            self._no_load[target] = reason
            if reason:
                logger.warning("%s reports no load; the router places by its own leases: %s", target.url, reason)
            else:
                logger.info("%s reports its load again", target.url)
        return load


async def _port_fault(url: str) -> str:
    from engines.http.origin import Origin
    from engines.http.port_owner import port_fault  # imported here, because most routers have no own engines

    origin = Origin.parse(url)
    return await asyncio.to_thread(port_fault, origin.host, origin.port)
