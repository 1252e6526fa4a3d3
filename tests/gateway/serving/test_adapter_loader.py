"""An engine is asked to load an adapter once, however many requests wait for it, and a failure is ours to tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.adapter import Adapter
from contracts.errors import AdapterUnavailable, EngineFailed
from contracts.lease import Engine, Lease
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.adapter_loader import AdapterLoader

ADAPTER = Adapter("6f0c2a4e", "support", "llama", "/srv/adapters/acme")
DRIVER = drivers.get("sglang")
REGISTRY = CollectorRegistry()
METRICS = GatewayMetrics(REGISTRY)


class Connections:
    """Answers when it is let."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.let = asyncio.Event()

    async def fetch(self, url: str, request: EngineRequest, timeout_s: float, *, pool_name: str) -> tuple[int, bytes]:
        self.asked.append((request.path, msgspec.json.decode(request.body)))
        await self.let.wait()
        if not self.answers:
            raise EngineFailed("it is gone")
        status, body = self.answers.pop(0)
        return status, msgspec.json.encode(body)


def loader_of(connections: Connections, clock: Callable[[], float] = time.monotonic) -> AdapterLoader:
    return AdapterLoader(cast(EngineConnections, connections), METRICS, 5.0, clock)


def lease(*, load: bool = True, evict: str = "", url: str = "http://one") -> Lease:
    return Lease("lease", Engine("one-0", url, "sglang", "llama", "one"), 0.0, load, evict)


async def test_requests_that_come_meanwhile_wait_for_the_same_load() -> None:
    connections = Connections((200, {"success": True}))
    loader = loader_of(connections)
    waiting = [asyncio.create_task(loader.require(ADAPTER, lease(), DRIVER)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # who began it leaves
    connections.let.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] + [type(None)] * 4
    assert connections.asked == [
        ("/load_lora_adapter", {"lora_name": "lora-6f0c2a4e", "lora_path": "/srv/adapters/acme"})
    ]


async def test_what_the_engine_holds_is_not_loaded() -> None:
    connections = Connections()
    await loader_of(connections).require(ADAPTER, lease(load=False), DRIVER)
    await loader_of(connections).require(None, lease(), DRIVER)
    assert connections.asked == []


async def test_another_gateway_may_have_been_first() -> None:
    message = "Failed to load LoRA adapter lora-6f0c2a4e because it is already loaded"
    connections = Connections((400, {"success": False, "error_message": message}))
    connections.let.set()
    await loader_of(connections).require(ADAPTER, lease(), DRIVER)


async def test_the_one_to_be_evicted_goes_first_and_its_failure_stops_nothing() -> None:
    connections = Connections((400, {"error_message": "does not exist"}), (200, {"success": True}))
    connections.let.set()
    await loader_of(connections).require(ADAPTER, lease(evict="lora-old"), DRIVER)
    assert [path for path, _ in connections.asked] == ["/unload_lora_adapter", "/load_lora_adapter"]


async def test_a_failure_names_the_adapter_and_not_its_path_and_costs_no_other_its_place_for_a_while() -> None:
    refusal = {"success": False, "error_message": "/srv/adapters/acme does not exist"}
    connections = Connections((400, refusal), (200, {"success": True}))
    connections.let.set()
    now_s = [100.0]
    loader = loader_of(connections, lambda: now_s[0])
    with pytest.raises(AdapterUnavailable) as failed:
        await loader.require(ADAPTER, lease(), DRIVER)
    assert "llama:support" in failed.value.message
    assert "/srv" not in failed.value.message
    with pytest.raises(AdapterUnavailable):
        await loader.require(ADAPTER, lease(evict="lora-old"), DRIVER)
    assert len(connections.asked) == 1, "the engine was neither asked again nor told to unload another"
    now_s[0] += failed.value.retry_after_s or 0.0
    await loader.require(ADAPTER, lease(), DRIVER)
    counted = {
        sample.labels["outcome"]: sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "slipstream_adapter_loads_total"
    }
    assert counted["failed"] >= 1
    assert counted["loaded"] >= 1


async def test_an_engine_that_cannot_be_reached_is_at_fault_itself() -> None:
    connections = Connections()
    connections.let.set()
    with pytest.raises(EngineFailed):
        await loader_of(connections).require(ADAPTER, lease(), DRIVER)


async def test_a_dialect_without_adapters_says_so() -> None:
    with pytest.raises(AdapterUnavailable, match="do not support adapters"):
        await loader_of(Connections()).require(ADAPTER, lease(), drivers.get("openai"))


async def test_stopping_ends_what_is_being_loaded() -> None:
    loader = loader_of(Connections())
    waiting = asyncio.create_task(loader.require(ADAPTER, lease(), DRIVER))
    await asyncio.sleep(0)
    await loader.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting
