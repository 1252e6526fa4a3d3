"""The process of one gateway instance: takes its port, serves until it is stopped, drains."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import sys
from typing import TYPE_CHECKING

import msgspec

from contracts.errors import ConfigError
from gateway.config import GatewayConfig
from gateway.http.config import ConnectionsConfig
from gateway.instance import InstanceConfig

if TYPE_CHECKING:
    from gateway.services import Services, Surroundings

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that tokenizes may keep the interpreter from the loop. Python's 5 ms come once for each of the ten
or so turns of the loop that a request's first token takes."""
READY_BEFORE_LISTENING_S = 5.0
READY_LOOK_S = 0.02
RESERVED_DESCRIPTORS = 64
"""For everything but clients and engines: databases, journal, metrics, the listener."""

logger = logging.getLogger(__name__)


def main(config: GatewayConfig, place: InstanceConfig, surroundings: Surroundings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError when it cannot start."""
    import uvloop

    uvloop.run(serve(config, place, surroundings))


async def serve(config: GatewayConfig, place: InstanceConfig, surroundings: Surroundings) -> None:
    """Run one instance on the current loop until a signal ends it; running requests get `drain_timeout_s`."""
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
            _rest_garbage_collector()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            await server.serve()


async def _ready(services: Services) -> None:
    """Return when the instance can serve; or after a while, to report the missing part on /readyz. Until it listens,
    requests go to the instances that can."""
    try:
        async with asyncio.timeout(READY_BEFORE_LISTENING_S):
            while not all(services.readiness().values()):  # noqa: ASYNC110  five parts' state, and a start has time
                await asyncio.sleep(READY_LOOK_S)
    except TimeoutError:
        missing = ", ".join(name for name, holds in services.readiness().items() if not holds)
        logger.warning("not ready after %g s, /readyz says why: %s", READY_BEFORE_LISTENING_S, missing)


def _rest_garbage_collector() -> None:
    """Exclude the loaded objects, which stay forever, from collection: scanning them repeatedly costs a relay of small
    short-lived objects more than it finds. Cycles are still collected, a hundred times more rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(70_000, 20, 50)


def fitting(config: ConnectionsConfig, descriptors: int) -> ConnectionsConfig:
    """The limits with no more connections than there are descriptors for: a client's and its engine's each.

    Raises ConfigError when there is no room for any.
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
