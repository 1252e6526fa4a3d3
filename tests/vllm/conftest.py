"""The session's vLLM, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engines.drivers.vllm import VLLMDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.real_engine import RealEngine
from tests.vllm.server import FULL, TOKEN, VLLMProcess, VLLMServer, venv, vllm_process


@pytest.fixture(scope="session")
async def vllm() -> AsyncIterator[VLLMServer]:
    """The chat model behind the real vLLM, with all that the driver knows switched on."""
    if venv() is None:
        pytest.skip("SLIPSTREAM_TEST_VLLM_VENV is not set")
    async with vllm_process(*FULL) as process:
        yield process.server


@pytest.fixture(scope="session")
async def another(vllm: VLLMServer) -> AsyncIterator[VLLMProcess]:
    """A second one, which tests kill and start again; it serves before and after."""
    async with vllm_process() as process:
        yield process


@pytest.fixture
async def connections() -> AsyncIterator[EngineConnections]:
    """Connections that hold the engine's token."""
    opened = EngineConnections(OneKey(TOKEN))
    yield opened
    await opened.close()


@pytest.fixture
async def engine(vllm: VLLMServer, connections: EngineConnections) -> AsyncIterator[RealEngine]:
    """The session's vLLM by the driver of a pool that stops requests by id; idle before and after."""
    made = RealEngine(VLLMDriver(abort_by_id=True), vllm.url, vllm.model, connections)
    await made.idle()
    yield made
    await made.idle()
