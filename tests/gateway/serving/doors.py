"""As much of a gateway as a request meets before the pipeline, in memory, and an endpoint behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from contracts.desired_state import Model
from contracts.errors import SlipstreamError
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.loop_shares import LoopShares
from gateway.limits.levels import Levels
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint, IsTheirs
from gateway.serving.idle_timeout import IdleTimeouts
from gateway.serving.request import Arrival, Salts
from gateway.wire.config import RequestConfig
from gateway.wire.format import WireFormat
from gateway.wire.openai.format import ChatFormat
from gateway.wire.prepared import Target
from tests.gateway.served import served

KEY = KeyRecord(Caller("o", "p", "k"), Levels())
MODEL = Target(Model("m", Tier.CHAT, "pool", 4_096), drivers.get("sglang").capabilities, None)
BODY = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "x" * 1_000_000}]})


class Doors:
    """As much of `InferenceServices` as a request meets before the exchange; one key, one model."""

    def __init__(self) -> None:
        self.keyring = self.catalog = self
        self.salts = Salts(b"secret")
        self.spans = self.access_log = None
        self.registry = CollectorRegistry()
        self.metrics = GatewayMetrics(self.registry)
        self.refusals: list[SlipstreamError] = []
        self.key = KEY
        self.pipeline: Any = None
        self.idle_timeouts = IdleTimeouts()
        self.asked = 0
        """How often the key was looked up."""

    def cached(self, secret: str) -> KeyRecord:
        self.asked += 1
        return self.key

    models = ()

    def find(self, name: str, may_use: object, adapters: object = (), *_: object) -> Target:
        return MODEL

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        self.refusals.append(error)

    def answered(self, code: str) -> float:
        """How many requests ended so."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return sum(s.value for s in samples if s.labels.get("code") == code and s.name.endswith("_total"))


def endpoint_of(
    services: Any,
    wire_format: WireFormat[Any],
    scope: Scope,
    others: Sequence[tuple[IsTheirs, WireFormat[Any]]] = (),
    *,
    config: RequestConfig | None = None,
    shares: LoopShares | None = None,
) -> InferenceEndpoint[Any]:
    """services: the part of `InferenceServices` that its requests use. others: see `InferenceEndpoint`."""
    config = config or RequestConfig()
    shares = LoopShares() if shares is None else shares  # empty ones are falsy
    room = BodyRoom(config.organization_body_bytes)
    return InferenceEndpoint(services, wire_format, scope, 8_000_000, config, shares, room, others)


@contextlib.asynccontextmanager
async def serving(
    wire_format: ChatFormat, doors: Doors, prepare_timeout_s: float = 3_600, shares: LoopShares | None = None
) -> AsyncIterator[int]:
    """The port of a server with this one endpoint."""
    config = RequestConfig(prepare_timeout_s=prepare_timeout_s)
    async with served(endpoint_of(doors, wire_format, Scope.CHAT, config=config, shares=shares)) as server:
        yield server.port
