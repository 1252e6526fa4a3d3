"""One SGLang for the whole session; see `server.py` for what it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engines.connection import EngineConnections
from tests.sglang.server import MODELS, SGLangServer, settings, sglang_server


@pytest.fixture(scope="session")
async def sglang() -> AsyncIterator[SGLangServer]:
    """The chat model behind the real SGLang."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    async with sglang_server(MODELS / "slipstream-chat", "tiny", "engine-token") as server:
        yield server


@pytest.fixture
async def connections(sglang: SGLangServer) -> AsyncIterator[EngineConnections]:
    """Connections that hold the engine's token."""
    opened = EngineConnections(sglang.token)
    yield opened
    await opened.close()
