"""The session's engines, shared by all tests, since one takes a minute to start: one, another like it, and a narrow one
that goes by priority and publishes KV events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.sglang.client import Client
from tests.sglang.server import MODELS, SGLangProcess, SGLangServer, free_port, settings, sglang_process

PLACES = 1


class Publisher(NamedTuple):
    """An engine that runs `PLACES` requests at a time, by priority, and the addresses it publishes on."""

    process: SGLangProcess
    events: str
    replay: str


@pytest.fixture
async def connections(sglang: SGLangServer) -> AsyncIterator[EngineConnections]:
    """Connections that hold the engine's token."""
    opened = EngineConnections(OneKey(sglang.token))
    yield opened
    await opened.close()


@pytest.fixture
async def engine(sglang: SGLangServer, connections: EngineConnections) -> Client:
    """The session's engine, idle."""
    engine = Client(sglang, connections)
    await engine.idle()
    return engine


@pytest.fixture(scope="session")
async def another(sglang: SGLangServer) -> AsyncIterator[SGLangProcess]:
    """A second engine like the session's first. Who kills it starts it again."""
    async with sglang_process(sglang.folder, sglang.model, sglang.token) as process:
        yield process


@pytest.fixture
async def narrow(publisher: Publisher) -> AsyncIterator[Client]:
    """An engine that runs `PLACES` requests at a time, by priority."""
    connections = EngineConnections(OneKey(publisher.process.server.token))
    yield Client(publisher.process.server, connections)
    await connections.close()


@pytest.fixture(scope="session")
async def publisher() -> AsyncIterator[Publisher]:
    """An engine that publishes, and repeats what was missed; scheduled as `engines render` has it."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    events, replay = free_port(), free_port()
    publishing = {
        "publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }  # fmt: skip
    flags = (
        "--kv-events-config", json.dumps(publishing), "--max-running-requests", str(PLACES),
        "--enable-priority-scheduling", "--default-priority-value", "0",
    )  # fmt: skip
    async with sglang_process(MODELS / "slipstream-chat", "tiny", "engine-token", *flags) as process:
        yield Publisher(process, f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}")
