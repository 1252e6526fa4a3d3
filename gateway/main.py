"""The process of one gateway instance: opens its port, serves until told to stop, drains."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import resource
import socket
import sys
from pathlib import Path

import msgspec

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from gateway.config import GatewayConfig
from gateway.http.config import ConnectionsConfig

BACKLOG = 2_048
SWITCH_INTERVAL_S = 0.0005
"""How long a thread that tokenizes may keep the interpreter from the loop. Python's 5 ms come once for each of the ten
or so turns of the loop that a request's first token takes."""
RESERVED_DESCRIPTORS = 64
"""For everything that is no client and no engine: databases, journal, metrics, the listener."""

logger = logging.getLogger(__name__)


class InstanceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where this instance stands: everything that differs between deployments and instances."""

    database_url: str
    valkey_url: str
    journal_folder: Path
    """Parent of all instances' journals; this one locks the folder named after `instance` in it."""
    instance: str
    """Stable over restarts: `0`, `1`, …"""
    token: str
    """What engines of pools without a key of their own are sent."""
    router_token: str
    """What the router knows gateways by."""
    pepper: bytes
    models: tuple[Model, ...] = ()
    pools: tuple[Pool, ...] = ()
    """The settings' models and pools; they seed the desired state. Empty: whatever the database holds."""


def main(config: GatewayConfig, place: InstanceConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError when it cannot start."""
    import uvloop

    uvloop.run(serve(config, place))


async def serve(config: GatewayConfig, place: InstanceConfig) -> None:
    """Run one instance on the current loop until a signal ends it; running requests get `drain_timeout_s`."""
    import uvicorn

    from gateway.app import create_app
    from gateway.compose import running_services
    from gateway.http.certificate import certificate_of
    from gateway.http.client_protocol import ClientProtocol
    from gateway.http.connections import ConnectionTable
    from gateway.http.server import HttpServer

    certificate = certificate_of(config.tls)
    limits = fitting(config.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with contextlib.closing(listen(config.host, config.port)) as listener:
        async with running_services(config, place) as services, contextlib.AsyncExitStack() as stack:
            table = ConnectionTable(limits, services.metrics)
            for part in (table, certificate):
                if part is not None:
                    await stack.enter_async_context(part.task)
            server = HttpServer(
                uvicorn.Config(
                    create_app(services, config),
                    http=functools.partial(ClientProtocol, table=table, certificate=certificate),  # type: ignore[arg-type]
                    ws="none",
                    lifespan="off",
                    access_log=False,
                    log_config=None,
                    server_header=False,
                    proxy_headers=False,
                    timeout_graceful_shutdown=max(1, round(config.drain_timeout_s)),
                    backlog=BACKLOG,
                )
            )

            def begin_draining() -> None:
                services.draining = True

            server.on_exit = begin_draining
            _rest_garbage_collector()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            await server.serve(sockets=[listener])


def _rest_garbage_collector() -> None:
    """What is loaded now stays for ever: looking at it again and again costs a relay of small short-lived objects more
    than it can find. Cycles are still collected, a hundred times more rarely."""
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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that several instances can share. Raises ConfigError when the port cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"gateway.port: cannot listen on {host}:{port}: {error.strerror}", param="gateway.port"
        ) from None
    return listener
