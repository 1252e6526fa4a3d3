"""The engine process, which listens, loads the model and serves until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry

from contracts.errors import ConfigError
from contracts.metrics import metrics_server
from engines.embedded.config import EngineConfig
from engines.embedded.http.app import App
from engines.embedded.metrics import EngineCollector
from engines.embedded.service import Service
from engines.embedded.spans import EngineSpans
from telemetry.config import TracingConfig
from telemetry.start import running_tracing

logger = logging.getLogger(__name__)
SWITCH_INTERVAL_S = 0.0005
"""Both threads need the interpreter lock several times per token. With Python's 5 ms, a busy thread can block the other
for longer than a step takes."""


def main(
    config: EngineConfig,
    token: str | None = None,
    metrics_token: str | None = None,
    tracing: TracingConfig | None = None,
) -> None:
    """Run one engine until SIGTERM or SIGINT. The first signal drains, a second one ends at once. Tokens: see `App`.

    Raises ConfigError if settings, model folder or port are wrong, and the error that ended the engine's thread.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = listen(config.host, config.port)
    with contextlib.closing(listener), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, token, metrics_token, tracing or TracingConfig(), listener))


async def _serve(
    config: EngineConfig, token: str | None, metrics_token: str | None, tracing: TracingConfig, listener: socket.socket
) -> None:
    service, registry = Service(config), CollectorRegistry()
    registry.register(EngineCollector(service))
    async with running_tracing(tracing, "engine", registry, instance=f"{service.name}-{os.getpid()}") as spans:
        app = App(service, token, metrics_token, None if spans is None else EngineSpans(spans, service.name))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        with metrics_server(registry, config.metrics, "engine.metrics"):
            await run(service, app, listener)
    if service.failure is not None:
        raise service.failure


async def run(service: Service, app: App, listener: socket.socket) -> None:
    """Serve until `service` is stopped or fails."""
    settings = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )
    server = _Server(settings)
    logger.info("listening on http://%s:%d", *listener.getsockname()[:2])
    service.start()
    serving = asyncio.create_task(server.serve([listener]))
    stopped = asyncio.create_task(service.stopped.wait())
    await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    server.should_exit = True
    await serving
    await service.close()


class _Server(uvicorn.Server):
    """A server without uvicorn's signal handlers, which would close the port instead of draining with 503."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `_serve`."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Listen on the port. Raises ConfigError if it is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"engine.port: cannot listen on {host}:{port}: {error.strerror}", param="engine.port"
        ) from None
    listener.setblocking(False)
    return listener
