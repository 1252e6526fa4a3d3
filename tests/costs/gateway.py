"""A whole gateway in memory, from the bytes of a client's socket to those of Valkey, router, engine and journal.

All parts of the product are real, except that nothing waits for threads or disks: the journal commits in the event
loop's thread without a sync, and records that are written after a request (traces, samples of prefixes) stay in their
queues. The key is in memory, like that of a caller with an earlier request.
"""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.server import ServerState

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Caller, Tier
from contracts.lease import Engine
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.auth import keys
from gateway.auth.key_record import KeyRecord
from gateway.auth.keyring import Keyring
from gateway.auth.scopes import Scope
from gateway.autocomplete.text_store import TextStore
from gateway.config import GatewayConfig
from gateway.http.client_protocol import ClientProtocol
from gateway.http.connections import ConnectionTable
from gateway.http.front_door import FrontDoor
from gateway.http.loop_shares import LoopShares
from gateway.http.pace import Pace
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LimitsMetrics
from gateway.metering.journal import journal as journals
from gateway.metering.journal.committer import Committer, Entry
from gateway.metering.journal.disk import Disk
from gateway.metering.metrics import MeteringMetrics
from gateway.metering.pricing.price import Price
from gateway.metering.pricing.prices import PriceBook
from gateway.observability.cascade_metrics import CascadeMetrics
from gateway.observability.file_metrics import FileMetrics
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.observer import PrefixObserver
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from gateway.serving.assembly import Features, Serving
from gateway.serving.body_room import BodyRoom
from gateway.serving.cascade import Cascades
from gateway.serving.endpoint import InferenceEndpoint, InferenceServices
from gateway.serving.idle_timeout import IdleTimeouts
from gateway.serving.model_catalog import ModelCatalog
from gateway.serving.request import Salts
from gateway.serving.request_costs import RequestCosts
from gateway.serving.shadow_copies import Shadow
from gateway.serving.trace import Traces
from gateway.shadow.metrics import ShadowMetrics
from gateway.shadow.sampling import ShadowSampler
from gateway.shadow.store import PairStore
from gateway.supersession.lineage import Digests
from gateway.supersession.supersession import Supersession
from gateway.wire.openai.format import ChatFormat, CompletionFormat
from router.client import RouterClient
from router.client_config import RouterClientConfig
from tests.costs.memory_loop import MemoryLoop
from tests.costs.meter import Meter
from tests.costs.peers import MemoryClient, MemoryEngine, MemoryRouter, MemoryValkey

PEPPER = b"pepper"
MODELS = Path(__file__).parents[2] / "models"
CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
VALKEY, ROUTER, ENGINE = "/valkey", "router", "engine"
"""Addresses of the peers."""
STATE = DesiredState(
    1,
    (
        Model("chat", Tier.CHAT, "chat", 8_192, tokenizer=str(MODELS / "slipstream-chat")),
        Model("code", Tier.AUTOCOMPLETE, "code", 8_192, tokenizer=str(MODELS / "slipstream-code")),
        Model("mock", Tier.CHAT, "mock", 32_768),
    ),
    (
        Pool("chat", "sglang", (Replica("chat-1", f"http://{ENGINE}:1"),)),
        Pool("code", "embedded", (Replica("code-1", f"http://{ENGINE}:2"),)),
        Pool("mock", "openai", (Replica("mock-1", f"http://{ENGINE}:3"),)),
    ),
)
RULES = [
    Rule(Level.ORGANIZATION, "organization", None, Limits(tokens_per_minute=1_000_000, max_concurrency=100)),
    Rule(Level.KEY, "key", None, Limits(requests_per_minute=1_000, tokens_per_minute=1_000_000)),
]
KEY = KeyRecord(Caller("organization", "project", "key"), Levels.of("organization", RULES))


class MemoryGateway:
    """A running gateway and its peers; `memory_gateway` makes one."""

    def __init__(self, secret: str, valkey: MemoryValkey, engine: MemoryEngine, client: MemoryClient) -> None:
        self.valkey = valkey
        self.engine = engine
        self.client = client
        self._secret = secret

    def request(self, path: str, **fields: Any) -> bytes:
        """The request's bytes, as a client's library writes them."""
        body = msgspec.json.encode(fields)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost:8000\r\nAccept: application/json\r\n"
            "User-Agent: OpenAI/Python 3\r\n"
            f"Authorization: Bearer {self._secret}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        return head.encode() + b"\r\n" + body


class _CommitsAtOnce(Committer):
    """A committer that commits in the thread of its caller."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._thread = mock.Mock(is_alive=lambda: False)

    def submit(self, entries: list[Entry]) -> None:
        self._commit(entries)


class _NothingSynced(Disk):
    """The real disk. It counts writes and syncs, and does not sync."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def write(self, descriptor: int, data: bytes) -> int:
        self._meter.transferred("writes to the journal")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._meter.transferred("syncs of the journal")

    def sync_folder(self, path: Path) -> None:
        pass


@contextlib.asynccontextmanager
async def memory_gateway(loop: MemoryLoop) -> AsyncIterator[MemoryGateway]:
    """Start a gateway on `loop`, which must be the running loop."""
    registry, config = CollectorRegistry(), GatewayConfig()
    metrics, file_metrics = GatewayMetrics(registry), FileMetrics(registry)
    engines = {
        model.name: Engine(replica.id, replica.url, pool.driver, model.name, pool.name)
        for model, pool in zip(STATE.models, STATE.pools, strict=True)
        for replica in pool.replicas
    }
    valkey, engine, client = MemoryValkey(len(RULES)), MemoryEngine(), MemoryClient()
    loop.peers = {VALKEY: valkey, ROUTER: MemoryRouter(engines), ENGINE: engine}
    pool: Any = None  # nothing uses the database
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with mock.patch.object(journals, "Committer", _CommitsAtOnce):
            journal = journals.Journal(
                folder / "gateway", config.metering, MeteringMetrics(registry), _NothingSynced(loop.meter)
            )
        await journal.start()
        stack.push_async_callback(journal.stop)
        limiter = Limiter(
            f"unix://{VALKEY}",
            config.limits,
            LimitsMetrics(registry),
            instance="gateway",
            spending=mock.AsyncMock(),
            drain=mock.AsyncMock(),
            currency="EUR",
        )
        await limiter._valkey.start()
        stack.push_async_callback(limiter.stop)
        router = RouterClient(RouterClientConfig(address=f"{ROUTER}:1"), "token", "gateway")
        await router.start()
        stack.push_async_callback(router.stop)
        await router.wait_connected(1.0)
        catalog = ModelCatalog()
        stack.callback(catalog.close)
        await catalog.load(STATE)
        router.publish(STATE)
        connections = EngineConnections(OneKey("engine-token"))
        keyring = Keyring("postgresql://u@localhost/d", PEPPER, config.auth)
        keyring._listener.proven_at_s = math.inf
        minted = keys.mint(PEPPER)
        keyring._cache.put(keyring._fingerprint(minted.secret), minted.hash, KEY)
        prices = PriceBook(None)
        prices.replace([Price(n, model.name, 0.0, None, 100, 50, 300, 0) for n, model in enumerate(STATE.models)])
        traces = Traces(pool, metrics, config.trace_flush_s)
        observer = PrefixObserver(PrefixDigests(PEPPER), config.prefixes.memory_bytes)
        shadow_metrics = ShadowMetrics(registry)
        pairs = PairStore(pool, shadow_metrics, config.shadow.flush_s)
        cascades = Cascades(catalog, CascadeMetrics(registry))
        idle_timeouts = IdleTimeouts()
        serving = Serving(
            config,
            limiter,
            RequestCosts(prices),
            journal,
            router,
            connections,
            catalog.driver,
            idle_timeouts,
            Features(
                metrics=metrics,
                file_metrics=file_metrics,
                kv_objective=catalog.kv_objective,
                traces=traces,
                prefixes=PrefixSamples(pool, metrics, observer, config.prefixes),
                texts=TextStore(pool, metrics, config.autocomplete.flush_s),
                shadow=Shadow(config.shadow, ShadowSampler(PEPPER), lambda: router.replicas, pairs, shadow_metrics),
                supersession=Supersession(Digests(PEPPER)),
                cascades=cascades,
            ),
        )
        stack.push_async_callback(serving.stop)
        services = InferenceServices(
            keyring=keyring,
            catalog=catalog,
            pipeline=serving.pipeline,
            pooling=serving.pooling,
            idle_timeouts=idle_timeouts,
            metrics=metrics,
            traces=traces,
            salts=Salts(PEPPER),
            cascades=cascades,
        )
        shares, room = LoopShares(), BodyRoom(config.requests.organization_body_bytes)
        formats: dict[str, tuple[Any, Scope]] = {
            CHAT_PATH: (ChatFormat, Scope.CHAT),
            COMPLETION_PATH: (CompletionFormat, Scope.COMPLETIONS),
        }
        endpoints: dict[str, Any] = {
            path: InferenceEndpoint(
                services, wire_format(config.requests), scope, config.max_body_bytes, config.requests, shares, room
            )
            for path, (wire_format, scope) in formats.items()
        }
        served = uvicorn.Config(
            FrontDoor(endpoints, None, Pace(shares)),
            interface="asgi3",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
        )
        table = ConnectionTable(config.connections, metrics)
        protocol = functools.partial(ClientProtocol, served, ServerState(), {}, loop, table=table)
        client.connect(functools.partial(loop.connected, protocol))
        yield MemoryGateway(minted.secret, valkey, engine, client)
