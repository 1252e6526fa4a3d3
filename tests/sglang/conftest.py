"""Connections to the session's SGLang, and a second one with less room that publishes KV events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.sglang.client import Client
from tests.sglang.server import MODELS, SGLangProcess, SGLangServer, free_port, settings, sglang_process

PLACES = 2


class Publisher(NamedTuple):
    """An engine that runs `PLACES` requests at a time, and the addresses it publishes on."""

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
async def publisher() -> AsyncIterator[Publisher]:
    """An engine that publishes, and repeats what was missed."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    events, replay = free_port(), free_port()
    publishing = {
        "publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }  # fmt: skip
    flags = ("--kv-events-config", json.dumps(publishing), "--max-running-requests", str(PLACES))
    async with sglang_process(MODELS / "slipstream-chat", "tiny", "engine-token", *flags) as process:
        yield Publisher(process, f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}")
