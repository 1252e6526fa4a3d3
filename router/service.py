"""The router process, which serves until it is stopped, and then drains."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection

import uvloop

from contracts import garbage_collector
from contracts.metrics import metrics_server
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from router.config import RouterConfig
from router.metrics import LoopCollector
from router.server import RouterServer
from router.spans import PlacementSpans
from router.tokens import RouterTokens
from telemetry.config import TracingConfig
from telemetry.start import running_tracing


async def serve(
    config: RouterConfig,
    tokens: RouterTokens,
    keys: EngineKeys,
    tracing: TracingConfig,
    own_engines: Collection[str] = (),
) -> None:
    """Run a router until SIGTERM or SIGINT. Raises ConfigError if it cannot start."""
    connections = EngineConnections(keys)
    server = RouterServer(config, tokens, connections, drivers.get, keys.follow, own_engines)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    metrics = LoopCollector(server.metrics.registry, loop)
    async with running_tracing(tracing, "router", server.metrics.registry) as spans:
        server.spans = None if spans is None else PlacementSpans(spans)
        with metrics_server(metrics, config.metrics, "router.metrics"):
            try:
                garbage_collector.rest()
                await server.start()
                await stopping.wait()
            finally:
                await server.stop()
                await connections.close()


def main(
    config: RouterConfig,
    tokens: RouterTokens,
    keys: EngineKeys,
    tracing: TracingConfig | None = None,
    own_engines: Collection[str] = (),
) -> None:
    """Entry point of `slipstream router`. keys: the keys for polls of engines. tracing: None to turn it off.
    own_engines: see `HealthPoller`."""
    uvloop.run(serve(config, tokens, keys, tracing or TracingConfig(), own_engines))
