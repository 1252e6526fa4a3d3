"""Runs the process of one gateway instance: opens its port, serves until a signal, and drains."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
from typing import TYPE_CHECKING

import msgspec

from contracts import garbage_collector
from contracts.errors import ConfigError
from gateway.config import GatewayConfig
from gateway.http.config import ConnectionsConfig
from gateway.instance import InstanceConfig

if TYPE_CHECKING:
    from gateway.services import Services, Surroundings

SWITCH_INTERVAL_S = 0.0005
"""How long a tokenizing thread may keep the interpreter from the event loop. Python's default of 5 ms would delay each
of the ten or so loop turns that a request's first token takes."""
READY_BEFORE_LISTENING_S = 5.0
READY_LOOK_S = 0.02
RESERVED_DESCRIPTORS = 64
"""File descriptors for everything except clients and engines: databases, journal, metrics and the listener."""

logger = logging.getLogger(__name__)


def main(config: GatewayConfig, place: InstanceConfig, surroundings: Surroundings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError if the gateway cannot start."""
    import uvloop

    uvloop.run(serve(config, place, surroundings))


async def serve(config: GatewayConfig, place: InstanceConfig, surroundings: Surroundings) -> None:
    """Run one instance on the current loop until a signal. Running requests then get `drain_timeout_s` to finish."""
    from gateway.app import create_app
    from gateway.compose import running_services
    from gateway.http.certificate import certificate_of
    from gateway.http.connections import ConnectionTable
    from gateway.http.listener import bind
    from gateway.http.server import http_server
    from gateway.http.service_manager import READY, STOPPING, inherited_listener, notify
    from gateway.own_port import own_port

    certificate = certificate_of(config.tls)
    limits = fitting(config.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    listener = inherited_listener(os.environ, os.getpid(), config.port)
    with contextlib.ExitStack() as held:
        if listener is None:
            kept = surroundings.port_kept
            held.enter_context(await own_port(config.host, config.port, place.journal_folder, kept=kept))
            listener = bind(config.host, config.port)
        held.enter_context(contextlib.closing(listener))
        async with running_services(config, place, surroundings) as services, contextlib.AsyncExitStack() as stack:
            mounted = None if surroundings.mount is None else surroundings.mount(services)
            if mounted is not None:
                stack.push_async_callback(mounted.stop)
            table = ConnectionTable(limits, services.metrics)
            for part in (table, certificate):
                if part is not None:
                    await stack.enter_async_context(part.task)

            def serving() -> None:
                logger.info("%s takes connections on port %d", place.instance, listener.port)
                notify(os.environ, READY)
                if mounted is not None:
                    mounted.start()

            def begin_draining() -> None:
                services.draining = True
                notify(os.environ, STOPPING)

            server = http_server(
                create_app(services, config, mounted),
                listener,
                table,
                certificate,
                drain_timeout_s=config.drain_timeout_s,
                leave_after_s=config.leave_after_s,
                on_serving=serving,
                on_exit=begin_draining,
            )
            await _ready(services)
            garbage_collector.rest()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            await server.serve()


async def _ready(services: Services) -> None:
    """Return once the instance can serve, or after `READY_BEFORE_LISTENING_S`, so that /readyz can name the missing
    part. Until this instance listens, requests go to the other instances."""
    try:
        async with asyncio.timeout(READY_BEFORE_LISTENING_S):
            while not all(services.readiness().values()):  # noqa: ASYNC110  several parts' state, at a start
                await asyncio.sleep(READY_LOOK_S)
    except TimeoutError:
        missing = ", ".join(name for name, ready in services.readiness().items() if not ready)
        logger.warning("not ready after %g s, /readyz says why: %s", READY_BEFORE_LISTENING_S, missing)


def fitting(config: ConnectionsConfig, descriptors: int) -> ConnectionsConfig:
    """Limit the connections to the file descriptors, of which each client takes one and its engine another.

    Raises ConfigError if there is no room for any connection.
    """
    room = (descriptors - RESERVED_DESCRIPTORS) // 2
    if room < 1:
        raise ConfigError(
            f"the limit of open files is {descriptors} and a gateway needs more than {RESERVED_DESCRIPTORS + 2};"
            " raise it (ulimit -n, LimitNOFILE=)"
        )
    if room >= config.max_connections:
        return config
    logger.warning(
        "gateway.connections.max_connections is %d, but the limit of open files, %d, has room for %d: that many are"
        " served; raise the limit (ulimit -n, LimitNOFILE=) to %d",
        config.max_connections,
        descriptors,
        room,
        2 * config.max_connections + RESERVED_DESCRIPTORS,
    )
    return msgspec.structs.replace(config, max_connections=room)
