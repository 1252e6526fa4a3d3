"""A router in this process, on a real port, and engines that only answer polls."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from router.server import RouterServer
from tests.router.fakes import GUARD_S, TOKEN, TOKENS, Connect, FakeDriver, FakeEngines, StartRouter


@pytest.fixture
def engines() -> FakeEngines:
    return FakeEngines()


@pytest.fixture
async def start_router(engines: FakeEngines) -> AsyncIterator[StartRouter]:
    """Starts routers that poll fast; all are stopped at the end."""
    running: list[RouterServer] = []

    async def start(**settings: object) -> RouterServer:
        defaults: dict[str, object] = {
            "port": 0,
            "control_port": 0,
            "poll_interval_s": 0.05,
            "recovery_interval_s": 0.02,
        }
        config = RouterConfig(**{**defaults, **settings})  # type: ignore[arg-type]
        router = RouterServer(config, TOKENS, engines, lambda name: FakeDriver())
        await router.start()
        running.append(router)
        return router

    yield start
    for router in running:
        await router.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects gateways; all are stopped at the end. On a busy machine nothing is late unless a test says when."""
    running: list[RouterClient] = []
    numbers = itertools.count(1)

    async def start(
        port: int, gateway_id: str = "", token: str = TOKEN, welcomed: bool = True, **settings: object
    ) -> RouterClient:
        defaults: dict[str, object] = dict.fromkeys(("patience_s", "answer_margin_s", "connect_timeout_s"), GUARD_S)
        config = RouterClientConfig(address=f"127.0.0.1:{port}", **{**defaults, **settings})  # type: ignore[arg-type]
        client = RouterClient(config, token, gateway_id or f"gateway-{next(numbers)}")
        await client.start()
        running.append(client)
        if welcomed:
            assert await client.wait_connected(GUARD_S)
        return client

    yield start
    for client in running:
        await client.stop()
