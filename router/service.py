"""The router process: serves until it is told to stop, then drains."""

from __future__ import annotations

import asyncio
import signal

import uvloop

from engines import drivers
from engines.connection import EngineConnections
from router.config import RouterConfig
from router.server import RouterServer


async def serve(config: RouterConfig, token: str) -> None:
    """Run a router until SIGTERM or SIGINT. Raises ConfigError when it cannot start."""
    connections = EngineConnections(token)
    server = RouterServer(config, token, connections, drivers.get)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.start()
        await stopping.wait()
    finally:
        await server.stop()
        await connections.close()


def main(config: RouterConfig, token: str) -> None:
    """Entry point of `slipstream router`."""
    uvloop.run(serve(config, token))
