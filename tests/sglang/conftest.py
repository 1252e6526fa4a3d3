"""Connections to the session's SGLang."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.sglang.server import SGLangServer


@pytest.fixture
async def connections(sglang: SGLangServer) -> AsyncIterator[EngineConnections]:
    """Connections that hold the engine's token."""
    opened = EngineConnections(OneKey(sglang.token))
    yield opened
    await opened.close()
