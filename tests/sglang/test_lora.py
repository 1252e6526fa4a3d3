"""LoRA adapters in the real SGLang, on a CPU by what `unpinned/sitecustomize.py` does. In float32: in bfloat16 answers
leave those of the merged models after a token or two."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.adapted_engine import make_adapters
from tests.adapter_facts import AdapterFacts, Served
from tests.real_engine import RealEngine
from tests.sglang.server import MODELS, free_port, settings, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_500)]
MODEL = MODELS / "slipstream-chat"
TOKEN = "engine-token"
FLAGS = (
    "--enable-lora", "--dtype", "float32", "--lora-backend", "torch_native", "--max-lora-rank", "8",
    "--max-loras-per-batch", "2", "--max-loaded-loras", "2", "--lora-target-modules", "q_proj", "k_proj", "v_proj",
    "o_proj", "gate_proj", "up_proj", "down_proj",
)  # fmt: skip


@pytest.fixture(scope="module", params=["default", "dynamo"])
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """By either format of its KV events."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    made = make_adapters(tmp_path_factory.mktemp("adapters"), MODEL)
    port = free_port()
    events = {"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{port}", "format": request.param}
    flags = (*FLAGS, "--kv-events-config", json.dumps(events))
    async with sglang_server(MODEL, "tiny", TOKEN, *flags, unpinned=True) as server:
        connections = EngineConnections(OneKey(TOKEN))
        engine = RealEngine(drivers.get("sglang"), server.url, server.model, connections)
        yield Served(engine, TOKEN, made, f"tcp://127.0.0.1:{port}")
        await connections.close()


class TestAdapters(AdapterFacts):
    """Of SGLang 0.5.23."""

    unknown_status = 400
    reads_again = True
