"""The whole pipeline in one process.

The real `RequestPipeline`, `EngineConnections`, formats and drivers stand between a client at the level of its socket
and fake engines that speak HTTP on loopback; limiter, journal and router keep their books in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from contracts.desired_state import KvObjective, Model
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Caller, Tier
from contracts.lease import Engine
from contracts.replica_state import ReplicaState
from engines.drivers import registry as drivers
from engines.drivers.base import Driver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.auth.key_record import KeyRecord
from gateway.config import GatewayConfig
from gateway.http.response import ResponseWriter
from gateway.limits.levels import Levels
from gateway.limits.rate_state import RateState
from gateway.metering.pricing.price import Price
from gateway.metering.pricing.prices import PriceBook
from gateway.observability.cascade_metrics import CascadeMetrics
from gateway.observability.file_metrics import FileMetrics
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.assembly import Features, Serving
from gateway.serving.cascade import Cascades
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.model_catalog import ModelCatalog
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.request_costs import RequestCosts
from gateway.serving.service_tier import in_class
from gateway.serving.shadow_copies import Shadow
from gateway.shadow.metrics import ShadowMetrics
from gateway.shadow.sampling import ShadowSampler
from gateway.supersession.lineage import Digests
from gateway.supersession.supersession import Supersession
from gateway.wire.config import RequestConfig
from gateway.wire.format import WireFormat
from gateway.wire.openai.format import ChatFormat, CompletionFormat
from gateway.wire.prepared import Target
from tests.fakes.engine import Connection
from tests.fakes.engine_state import FakeEngine
from tests.gateway.serving.client import Client
from tests.gateway.serving.fakes import (
    FakeJournal,
    FakeLimiter,
    FakePairs,
    FakePrefixes,
    FakeRouter,
    FakeTexts,
    FakeTraces,
    Faults,
)

GUARD_S = 60.0
"""Nothing takes this long unless a test fails."""
KEY = KeyRecord(Caller("organization", "project", "key"), Levels())
CHAT, COMPLETION = ChatFormat(RequestConfig()), CompletionFormat(RequestConfig())
PRICE = Price(1, "m", 0.0, None, 1_000_000, 1_000_000, 1_000_000, 1_000_000)
"""A token costs one micro-unit."""


def target(driver: str, tokenizer: Tokenizer | None = None) -> Target:
    """One chat model; its tokenizer, where it has one, heals no prompt, and no answer is judged."""
    model = Model("m", Tier.CHAT, "pool", 4_096, fim=FillInTheMiddle(healing=tokenizer is None, min_confidence=0.0))
    off_loop = None if tokenizer is None else OffLoopTokenizer(tokenizer)
    return Target(model, drivers.get(driver).capabilities, off_loop)


def body(**fields: Any) -> bytes:
    """A chat request. What the engine does with it is told to the engine."""
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})


EDITOR = b"Zed/0.211"
"""A `User-Agent` behind which somebody types."""


class Harness:
    """Use `harness`."""

    def __init__(self, engines: tuple[FakeEngine, ...], places: tuple[Engine, ...], **settings: Any) -> None:
        self.engines = engines
        self.places = places
        self.faults = Faults()
        self.state: RateState | None = settings.pop("state", None)
        self.tokenizer: Tokenizer | None = settings.pop("tokenizer", None)
        self.limiter = FakeLimiter(self.faults, self.state)
        self.journal = FakeJournal(self.faults)
        self.router = FakeRouter(self.faults, places)
        self.traces = FakeTraces()
        self.prefixes = FakePrefixes()
        self.texts = FakeTexts()
        self.pairs = FakePairs()
        self.registry = CollectorRegistry()
        self.metrics = GatewayMetrics(self.registry)
        self.idle = IdleTimeouts()
        self.connections = EngineConnections(OneKey(""))
        # a busy machine may take longer than the two seconds of a gateway
        self.config = msgspec.structs.replace(GatewayConfig(), **{"connect_timeout_s": GUARD_S, **settings})
        cascade_metrics = CascadeMetrics(self.registry)
        self.catalog = ModelCatalog(cascade_metrics=cascade_metrics)
        self.cascades = Cascades(self.catalog, cascade_metrics)
        self.prices = PriceBook(None)
        self.prices.replace([PRICE])
        self.supersession = Supersession(Digests(b"secret"))
        self.serving = Serving(
            self.config,
            self.limiter,
            RequestCosts(self.prices),
            self.journal,
            self.router,
            self.connections,
            self.driver,
            self.idle,
            Features(
                metrics=self.metrics,
                file_metrics=FileMetrics(self.registry),
                kv_objective=lambda _: KvObjective(),
                traces=self.traces,
                prefixes=self.prefixes,
                texts=self.texts,
                shadow=Shadow(
                    self.config.shadow,
                    ShadowSampler(b"secret"),
                    self.replicas,
                    self.pairs,
                    ShadowMetrics(self.registry),
                ),
                supersession=self.supersession,
                cascades=self.cascades,
            ),
        )
        self.pipeline = self.serving.pipeline
        self._driver = places[0].driver if places else "sglang"

    def use_router(self, router: Any) -> None:
        """Requests are placed by another router from now on."""
        for part in (self.pipeline, self.serving.generator, self.serving.background):
            part._router = router

    def driver(self, engine: Engine) -> Driver:
        return drivers.get(engine.driver)

    def replicas(self) -> list[ReplicaState]:
        """As the router would tell."""
        return [ReplicaState(one.replica_id, one.pool, "healthy", usable=True) for one in self.router.engines]

    def script(self, **script: Any) -> None:
        """What every engine does from now on; by field of `tests.fakes.script.Script`."""
        for engine in self.engines:
            engine.control(msgspec.json.encode(script))

    async def request(
        self,
        wire_format: WireFormat[Any] = CHAT,
        asked: bytes | None = None,
        agent: bytes = EDITOR,
        key: KeyRecord = KEY,
    ) -> InferenceRequest:
        """A request as the endpoint hands it over. agent: the client's `User-Agent`."""
        arrival, model = Arrival(wire_format, {b"user-agent": agent}), target(self._driver, self.tokenizer)
        decoded = wire_format.decode(asked if asked is not None else body(stream=True))
        prepared = await wire_format.prepare(decoded, arrival.request_id, key.caller, "salt", model)
        return InferenceRequest(arrival, key, model, in_class(prepared, key.priorities.for_tier(model.model.tier)))

    async def serve(
        self,
        client: Client,
        asked: bytes | None = None,
        wire_format: WireFormat[Any] = CHAT,
        agent: bytes = EDITOR,
        key: KeyRecord = KEY,
    ) -> InferenceRequest:
        """Serve one request to its end."""
        request = await self.request(wire_format, asked, agent, key)
        async with asyncio.timeout(GUARD_S):
            await self.run(request, client)
        return request

    async def run(self, request: InferenceRequest, client: Client) -> None:
        """Serve a prepared request as the endpoint does."""
        response, wait = ResponseWriter(client.connection, request.wire_format, request.request_id), Wait()
        self.idle.add(wait)
        try:
            await self.pipeline.run(request, client.connection, response, wait)
        finally:
            self.idle.remove(wait)

    async def engines_idle(self) -> None:
        """Return once no engine generates any more."""
        for number, engine in enumerate(self.engines):
            await self.engine_has(number, ended=engine.requests)

    async def engine_has(self, number: int = 0, **counters: int) -> None:
        """Return once this engine has counted so many."""
        reached = asyncio.Event()
        self.engines[number].wait({name: str(value) for name, value in counters.items()}, reached.set)
        async with asyncio.timeout(GUARD_S):
            await reached.wait()

    def go_on(self) -> None:
        """Engines that fell silent write the rest."""
        for engine in self.engines:
            for generating in list(engine.live.values()):
                generating.go_on()

    def abort(self) -> None:
        """Engines end what they generate, although nobody has asked for that."""
        for engine in self.engines:
            for generating in list(engine.live.values()):
                generating.abort()

    def require_balanced(self) -> None:
        """Everything that was taken is given back, once."""
        assert self.limiter.settled == self.limiter.reserved
        assert Counter(record.key for record in self.journal.records) == self.journal.opened_keys
        assert Counter(end.lease_id for end in self.router.ends) == self.router.granted
        assert set(self.limiter.reserved.values()) <= {1}
        assert not self.idle._waits
        assert self.sample("slipstream_active_requests", tier="chat") in (None, 0.0)
        billed = [record for record in self.journal.records if record.billed]
        assert len(billed) <= len(self.limiter.reserved), "at most one attempt of a request is billed"
        for record in billed:
            cost, refunded = self.limiter.used[record.opened.request_id]
            assert (cost.micro, refunded) == (record.usage.total_tokens, False), "the ledger's amount was settled"

    def sample(self, name: str, **labels: str) -> float | None:
        """One metric's value; None: never counted."""
        return self.registry.get_sample_value(name, labels)


@contextlib.asynccontextmanager
async def harness(engines: int = 2, driver: str = "sglang", **settings: Any) -> AsyncIterator[Harness]:
    """settings: of `GatewayConfig` that are not the default; `state`: what reservations tell of their counters;
    `tokenizer`: the model's."""
    loop = asyncio.get_running_loop()
    fakes = tuple(FakeEngine("", "fake") for _ in range(engines))
    servers = []
    places = []
    for number, fake in enumerate(fakes):
        server = await loop.create_server(lambda fake=fake: Connection(fake), "127.0.0.1", 0)  # type: ignore[misc]
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        servers.append(server)
        places.append(Engine(f"engine-{number}", url, driver, "fake", "pool"))
    running = Harness(fakes, tuple(places), **settings)
    running.script(tokens=4, prompt_tokens=7)
    try:
        yield running
    finally:
        await running.serving.stop()
        await running.connections.close()
        async with asyncio.timeout(GUARD_S):
            for place in places:
                await _accepted(place)
            while any(fake.connections for fake in fakes):  # noqa: ASYNC110  the turns until they hear of it
                await asyncio.sleep(0)
        for server in servers:
            server.close()
            await server.wait_closed()


async def _accepted(place: Engine) -> None:
    """Return once the engine has accepted every connection that was opened to it so far: they come in order."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(place.url.rpartition(":")[2]))
    writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.readline()
    writer.close()
    await writer.wait_closed()
