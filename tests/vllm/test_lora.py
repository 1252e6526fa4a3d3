"""LoRA adapters in the real vLLM, whose operations for them run on a CPU too. In float32, as the merged models are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.adapted_engine import make_adapters
from tests.adapter_facts import AdapterFacts, Served
from tests.real_engine import RealEngine
from tests.vllm.server import FOLDER, TOKEN, venv, vllm_process

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_500)]
FLAGS = (
    "--dtype", "float32", "--enable-lora", "--max-lora-rank", "8", "--max-loras", "2", "--max-cpu-loras", "2",
)  # fmt: skip
ALLOWED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    if venv() is None:
        pytest.skip("SLIPSTREAM_TEST_VLLM_VENV is not set")
    made = make_adapters(tmp_path_factory.mktemp("adapters"), FOLDER)
    async with vllm_process(*FLAGS, environment=ALLOWED) as process:
        server, connections = process.server, EngineConnections(OneKey(TOKEN))
        engine = RealEngine(drivers.get("vllm"), server.url, server.model, connections)
        yield Served(engine, TOKEN, made, server.kv_events)
        await connections.close()


class TestAdapters(AdapterFacts):
    """Of vLLM 0.32."""

    unknown_status = 404
