"""Stand-ins for engines, and short ways to say what a test wants."""

from __future__ import annotations

import asyncio
from typing import Protocol

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import EngineFailed
from contracts.generation import Generation, Tier
from contracts.lease import LeaseRequest
from engines.drivers.base import Capabilities, Driver, EngineRequest, Load
from router.client import RouterClient
from router.core.dispatcher import Dispatcher
from router.server import RouterServer
from router.tokens import RouterTokens

TOKEN = "token-of-the-tests"
READER_TOKEN = "readers-token-of-the-tests"
TOKENS = RouterTokens(TOKEN, READER_TOKEN)


class FakeDriver(Driver):
    """A dialect whose health and load are what `FakeEngines` says."""

    name = "fake"
    capabilities = Capabilities(True, True, True, True)

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        raise NotImplementedError

    def error(self, status: int, body: bytes) -> EngineFailed:
        return EngineFailed("fake")

    def health(self) -> EngineRequest:
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        return EngineRequest("GET", "/load")

    def parse_load(self, body: bytes) -> Load:
        return Load(running=int(body))


class FakeEngines:
    """What every engine answers to a poll. status: by URL, 200 unless given; 0 is a refused connection."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.polls: list[str] = []
        self.polled = asyncio.Event()
        self.gate: asyncio.Event | None = None
        """While set aside, health polls hang on it."""

    async def fetch(
        self, url: str, request: EngineRequest, timeout_s: float, *, pool_name: str = ""
    ) -> tuple[int, bytes]:
        if request.path == "/load":
            return 200, str(self.running.get(url, 0)).encode()
        self.polls.append(url)
        self.polled.set()
        if self.gate is not None:
            await self.gate.wait()
        status = self.status.get(url, 200)
        if status == 0:
            raise EngineFailed("connection refused")
        return status, b""

    async def next_poll(self) -> None:
        """Return when one more poll has begun."""
        self.polled.clear()
        await self.polled.wait()


class StartRouter(Protocol):
    """Starts a router; keywords are fields of RouterConfig."""

    async def __call__(self, **settings: object) -> RouterServer: ...


class Connect(Protocol):
    """Connects a gateway; keywords are fields of RouterClientConfig."""

    async def __call__(
        self, port: int, gateway_id: str = "", token: str = TOKEN, welcomed: bool = True, **settings: object
    ) -> RouterClient: ...


GUARD_S = 60.0


def queued(core: Dispatcher) -> int:
    """Asks waiting in all pools."""
    return sum(len(pool.queue) for pool in core.fleet.pools.values())


def fleet(
    version: int = 1, *, replicas: tuple[str, ...] = ("r1", "r2"), max_concurrency: int = 4, **weights: float
) -> DesiredState:
    """One model `m` (alias `m-alias`) on one pool of these replicas; weights by replica id."""
    wanted = tuple(Replica(name, f"http://127.0.0.1/{name}", weights.get(name, 1.0)) for name in replicas)
    model = Model("m", Tier.CHAT, "pool", 2048, aliases=("m-alias",), engine_model="m-inside")
    return DesiredState(version, (model,), (Pool("pool", "fake", wanted, max_concurrency),))


def ask(
    lease_id: str, *, model: str = "m", deadline_s: float = 30.0, tokens: int = 10, excluded: tuple[str, ...] = ()
) -> LeaseRequest:
    """An ask with the fields tests care about."""
    return LeaseRequest(
        lease_id, f"req_{lease_id}", 1, Tier.CHAT, model, tokens, tokens, deadline_s, excluded_replicas=excluded
    )
