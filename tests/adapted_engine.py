"""LoRA adapters on a real engine: asked of itself by its driver, and by way of our router and loader of adapters."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from prometheus_client import CollectorRegistry

from contracts.adapter import Adapter
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Generation, TextPrompt, Tier
from contracts.lease import Lease, LeaseEnd, LeaseRequest
from contracts.prefix import of_generation
from contracts.usage import Finish, Usage
from engines.drivers import registry as drivers
from engines.drivers.base import Driver
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.adapter_loader import AdapterLoader
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from router.core.prefix_index import PrefixIndex
from router.core.record import Record
from router.server import RouterServer
from router.tokens import RouterTokens
from tests.engines.embedded.peft_folder import merge, write_adapter
from tests.engines.embedded.tiny import finish, make_engine, request, text
from tests.real_engine import RealEngine, ask, text_of
from tests.router.fakes import GUARD_S
from tests.waiting import eventually

TOKENS = 4
PROMPT = tuple(range(300, 340))
MADE_OF = {"a": (0, 32), "b": (3, 32), "c": (2, 64)}
"""Seed and alpha of each."""
_numbers = itertools.count(1)


class Adapters(NamedTuple):
    """adapters: by name. merged: what the model that each is merged into says to `PROMPT`."""

    adapters: dict[str, Adapter]
    merged: dict[str, str]


def make_adapters(folder: Path, model: Path) -> Adapters:
    """Three of a model folder."""
    adapters, merged = {}, {}
    for name, (seed, alpha) in MADE_OF.items():
        path = write_adapter(folder / name, model, seed=seed, lora_alpha=alpha)
        adapters[name] = Adapter(f"id-{name}", "support", "public", str(path))
        engine = make_engine(merge(model, path, folder / f"merged-{name}"))
        merged[name] = text(finish(engine, request("r", PROMPT, max_tokens=TOKENS))["r", 0])
    return Adapters(adapters, merged)


def generation(adapter: Adapter | None, prompt: tuple[int, ...] = PROMPT) -> Generation:
    """A request with one, or with none."""
    return msgspec.structs.replace(ask(TextPrompt((prompt,)), max_tokens=TOKENS), adapter=adapter)


def new_prompt(length: int) -> tuple[int, ...]:
    """One that nobody has sent."""
    number = next(_numbers)
    return (number % 1_000 + 100, number // 1_000 + 100, *range(200, 198 + length))


async def load(engine: RealEngine, adapter: Adapter) -> str | None:
    """Ask the engine itself; why it does not."""
    return engine.driver.load_refusal(
        *await engine.fetch(engine.driver.load_adapter(adapter.engine_name, adapter.path))
    )


async def unload(engine: RealEngine, adapter: Adapter) -> int:
    """Ask the engine itself; its status."""
    return (await engine.fetch(engine.driver.unload_adapter(adapter.engine_name)))[0]


async def says(engine: RealEngine, adapter: Adapter | None) -> str:
    """Of a request that is no refusal, sent to the engine itself."""
    return await engine.text(generation(adapter))


async def cached(engine: RealEngine, adapter: Adapter | None, prompt: tuple[int, ...]) -> int:
    """Tokens of a prompt that the engine had, before it has all."""
    return (await engine.usage(generation(adapter, prompt))).cached_tokens


class Answer(NamedTuple):
    """What came of a request that the router placed."""

    text: str
    usage: Usage
    lease: Lease
    record: Record


class AdaptedFleet:
    """Router, gateway's client and loader of adapters over one engine that stands for two replicas: to the router they
    are two, so that it is seen where it sends a request."""

    def __init__(self, driver: Driver, url: str, token: str, model: str, most: int, kv_events: str = "") -> None:
        """model: as the engine serves it. most: adapters per replica. kv_events: where the engine publishes them."""
        self.connections = EngineConnections(OneKey(token))
        self._driver = driver
        self._url = url
        self._model = model
        self._most = most
        self._kv_events = kv_events
        self._token = token
        # on a busy machine a first token may be seconds late: no place is sooner than one that need not load
        config = RouterConfig(port=0, control_port=0, probe_timeout_s=30.0, adapter_load_s=600.0)
        self.router = RouterServer(config, RouterTokens(token, "reader"), self.connections, drivers.get)
        self.loader = AdapterLoader(self.connections, GatewayMetrics(CollectorRegistry()), 60.0)

    @property
    def index(self) -> PrefixIndex:
        """What the router takes for cached."""
        return self.router.dispatcher.fleet.pools["pool"].index

    def blocks(self, adapter: Adapter | None, prompt: tuple[int, ...]) -> int:
        """Of a prompt that the router takes for cached, on whatever replica."""
        return self.index.match(of_generation(generation(adapter, prompt)).hashes).blocks

    async def ask(
        self, adapter: Adapter | None, prompt: tuple[int, ...] = PROMPT, excluded: tuple[str, ...] = ()
    ) -> Answer:
        """As a gateway asks: placed, its adapter loaded where it has to be, streamed, reported. excluded: replicas that
        will not do."""
        asked = generation(adapter, prompt)
        chain, name = of_generation(asked), "" if adapter is None else adapter.engine_name
        lease = await self._client.acquire(
            LeaseRequest(
                asked.request_id, asked.request_id, 0, Tier.CHAT, "public", len(prompt), TOKENS, GUARD_S, "o",
                chain.kind, chain.hashes, excluded, adapter=name,
            )
        )  # fmt: skip
        await self.loader.require(adapter, lease, self._driver)
        engine = RealEngine(self._driver, lease.engine.url, self._model, self.connections)
        events = await engine.events(asked)
        usage = usage_of(events[-2]["usage"])
        self._client.first_token(asked.request_id, 0.1, usage.cached_tokens)
        self._client.release(LeaseEnd(asked.request_id, Finish.COMPLETE, usage))
        records = self.router.dispatcher.records
        await eventually(lambda: records.of(asked.request_id)[0].completion_tokens is not None)
        return Answer(text_of(events), usage, lease, records.of(asked.request_id)[0])

    async def _begin(self) -> None:
        await self.router.start()
        address = f"127.0.0.1:{self.router.port}"
        self._client = RouterClient(RouterClientConfig(address=address), self._token, "gateway")
        await self._client.start()
        assert await self._client.wait_connected(GUARD_S)
        replicas = (Replica("one", self._url, kv_events=self._kv_events), Replica("two", self._url))
        model = Model("public", Tier.CHAT, "pool", 2_048, engine_model=self._model)
        pool = Pool("pool", self._driver.name, replicas, max_adapters=self._most)
        self._client.publish(DesiredState(1, (model,), (pool,)))
        fleet = self.router.dispatcher.fleet
        await eventually(
            lambda: len(fleet.replicas) == len(replicas) and all(one.usable for one in fleet.replicas.values())
        )

    async def _end(self) -> None:
        await self.loader.stop()
        await self._client.stop()
        await self.router.stop()
        await self.connections.close()


@asynccontextmanager
async def adapted_fleet(
    driver: Driver, url: str, token: str, model: str, most: int, kv_events: str = ""
) -> AsyncIterator[AdaptedFleet]:
    """One that runs."""
    fleet = AdaptedFleet(driver, url, token, model, most, kv_events)
    await fleet._begin()
    try:
        yield fleet
    finally:
        await fleet._end()
