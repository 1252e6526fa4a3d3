"""The process of `slipstream control`: the admin API and the console on their own port.

It uses the same database, Valkey and router as the gateways but serves no model, so an operator's query shares no
event loop, connection or process with a customer's stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvloop
from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.response import Redirect
from prometheus_client import CollectorRegistry

from contracts.background_task import BackgroundTask
from contracts.desired_state import Model
from contracts.errors import ConfigError, RouterUnavailable
from control.api.call import CounterReader
from control.router_view.control_client import RouterControl
from control.webhooks.outbox import tell_crossing
from gateway.auth.keyring import Keyring
from gateway.desired.store import DesiredStateStore, last_pools
from gateway.http.certificate import certificate_of
from gateway.http.connections import ConnectionTable
from gateway.http.front_door import FrontDoor
from gateway.http.listener import bind, listened_on
from gateway.http.loop_shares import LoopShares
from gateway.http.pace import Pace
from gateway.http.server import http_server
from gateway.http.service_manager import READY, STOPPING, notify
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.spending import LedgerSpending
from gateway.main import fitting
from gateway.observability.metrics import GatewayMetrics
from slipstream.composition import Beside, control_of, secrets_of
from slipstream.settings import Settings
from storage.engine import lazy_pool

NAME = "control"
SERVED = {"/admin/v1/openapi.json": "GET", "/console/": "GET"}
"""Paths that the error for an unknown URL suggests."""
CONNECTIONS = 2
"""Database connections that count budgets. The admin API has its own."""
REPLICAS_EVERY_S = 2.0
"""Interval between two reads of the router's engines; pages show a change after it."""

logger = logging.getLogger(__name__)


def main(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError if it cannot start."""
    uvloop.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Run the control plane on the current loop until a signal ends it."""
    config, address = settings.gateway, settings.control
    certificate = certificate_of(config.tls)
    limits = fitting(config.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if listened_on(address.host, address.port):
        raise ConfigError(
            f"control.port: cannot listen on {address.host}:{address.port}: another program does; stop it, or choose "
            "another port",
            param="control.port",
        )
    with contextlib.closing(bind(address.host, address.port, "control.port")) as listener:
        async with _Parts(settings).running() as parts, contextlib.AsyncExitStack() as stack:
            table = ConnectionTable(limits, GatewayMetrics(CollectorRegistry()))
            for part in (table, certificate):
                if part is not None:
                    await stack.enter_async_context(part.task)
            control = await asyncio.to_thread(
                control_of, settings, secrets_of(settings), parts.beside(), parts.routes(), SERVED
            )
            stack.push_async_callback(control.stop)
            await control.start()

            def serving() -> None:
                logger.info("the control plane takes connections on port %d", listener.port)
                notify(os.environ, READY)

            def leave() -> None:
                parts.leaving = True
                notify(os.environ, STOPPING)

            server = http_server(
                FrontDoor({}, control, Pace(LoopShares(), config.connections.trusted_proxies)),
                listener,
                table,
                certificate,
                drain_timeout_s=config.admin.timeout_s,
                leave_after_s=config.leave_after_s,
                on_serving=serving,
                on_exit=leave,
            )
            await server.serve()


class _Parts:
    """The parts that the control plane needs and that a gateway would otherwise provide."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = DesiredStateStore(settings.database_url, settings.gateway.desired)
        address = settings.gateway.router.control_address or settings.control_address
        self._replicas = LiveReplicas(RouterControl(address, settings.reader_token))
        self._keyring = Keyring(settings.database_url, settings.pepper, settings.gateway.auth)
        self._counters: CounterReader
        self.leaving = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[_Parts]:
        """Run the parts. An unreachable database, Valkey or router does not prevent the start."""
        settings, config = self._settings, self._settings.gateway
        async with contextlib.AsyncExitStack() as stack:
            pool = await lazy_pool(
                settings.database_url, size=CONNECTIONS, connect_timeout_s=5.0, name="slipstream-control"
            )
            stack.callback(pool.terminate)
            await last_pools(pool, settings.database_url, config.desired.timeout_s)  # refuses a database without tables
            limiter = self._counters = Limiter(
                settings.valkey_url,
                config.limits,
                LimitsMetrics(CollectorRegistry()),
                instance=NAME,
                spending=Onlooker(pool, tell_crossing),
                drain=_nothing_to_drain,
                currency=settings.currency,
            )
            await limiter.start()
            stack.push_async_callback(limiter.stop)
            await self._keyring.start()
            stack.push_async_callback(self._keyring.stop)
            await self._store.start()
            stack.push_async_callback(self._store.stop)
            stack.push_async_callback(self._replicas.router.stop)
            await stack.enter_async_context(self._replicas.task)
            yield self

    def beside(self) -> Beside:
        """The parts in the form that the control plane takes."""
        return Beside(
            keyring=self._keyring,
            models=StoredModels(self._store),
            counters=self._counters,
            replicas=self._replicas,
            leaving=lambda: self.leaving,
        )

    def routes(self) -> list[HTTPRouteHandler]:
        """Health checks, and the redirect from `/` to the console."""

        @get(["/healthz", "/health"], media_type=MediaType.TEXT)
        async def healthz() -> str:
            return "ok"

        @get("/readyz")
        async def readyz() -> Response[dict[str, Any]]:
            parts = {"fleet": self._store.current.version > 0, "accepting": not self.leaving}
            ready = all(parts.values())
            return Response({"ready": ready, "parts": parts}, status_code=200 if ready else 503)

        @get("/")
        async def front_page() -> Redirect:
            return Redirect("/console/" if self._settings.gateway.console.enabled else "/admin/v1/openapi.json")

        return [healthz, readyz, front_page]


class StoredModels:
    """The models of the newest desired state."""

    def __init__(self, store: DesiredStateStore) -> None:
        self._store = store

    @property
    def models(self) -> tuple[Model, ...]:
        """All models."""
        return self._store.current.models

    @property
    def adapted_models(self) -> frozenset[str]:
        """Models for which some engines take LoRA adapters."""
        return self._store.current.adapted_models


class Onlooker(LedgerSpending):
    """The ledger's sums for a process that spends nothing: gateways that count a budget need not wait for it."""

    async def join(self, instance: str, epoch: str) -> None:
        """Join no round: this process has no journal."""


async def _nothing_to_drain(_: float) -> bool:
    return True


class _Replica(msgspec.Struct, frozen=True):
    id: str
    health: str
    breaker: str
    draining: bool
    usable: bool


class LiveReplicas:
    """A callable that returns every engine as the router last described it. Event streams compare two results."""

    def __init__(self, router: RouterControl) -> None:
        self.router = router
        self.task = BackgroundTask.every(REPLICAS_EVERY_S, self.look, "live replicas", at_once=True)
        self._last: tuple[_Replica, ...] = ()

    def __call__(self) -> object:
        return self._last

    async def look(self) -> None:
        """Read the engines once; none if the router does not answer."""
        try:
            fleet = await self.router.live_fleet()
        except RouterUnavailable:
            self._last = ()
            return
        self._last = tuple(
            _Replica(each.id, each.health, each.breaker, each.draining, each.usable)
            for pool in fleet.pools
            for each in pool.replicas
        )
