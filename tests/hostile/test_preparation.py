"""What is done for a request before anything is reserved ends when its client leaves, and at its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.desired_state import Model
from contracts.errors import SlipstreamError
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.limits.levels import Levels
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint
from gateway.serving.loop_shares import LoopShares
from gateway.serving.request import Arrival, Salts
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.openai.schema import ChatRequest
from gateway.wire.prepared import Prepared, Target
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

    def cached(self, secret: str) -> KeyRecord:
        return KEY

    models = ()

    def find(self, name: str, may_use: object, adapters: object = ()) -> Target:
        return MODEL

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        self.refusals.append(error)

    def answered(self, code: str) -> float:
        """How many requests ended so."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return sum(s.value for s in samples if s.labels.get("code") == code and s.name.endswith("_total"))


class Endless(ChatFormat):
    """A preparation that waits for what never comes: `gateway.wire.chat_prompt` behind a tokenizer that has died."""

    def __init__(self) -> None:
        super().__init__(RequestConfig())
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def prepare(self, asked: ChatRequest, *more: Any) -> Prepared:
        self.begun.set()
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def serving(
    endless: Endless, doors: Doors, prepare_timeout_s: float, shares: LoopShares | None = None
) -> AsyncIterator[int]:
    """The port of a server with this one endpoint."""
    endpoint: InferenceEndpoint[ChatRequest] = InferenceEndpoint(
        doors,  # type: ignore[arg-type]
        endless,
        Scope.CHAT,
        8_000_000,
        RequestConfig(prepare_timeout_s=prepare_timeout_s),
        shares or LoopShares(),
        BodyRoom(RequestConfig().organization_body_bytes),
    )
    async with served(endpoint) as server:
        yield server.port


def alive() -> int:
    """Decoded requests in memory."""
    gc.collect()
    return sum(1 for thing in gc.get_objects() if type(thing) is ChatRequest)


async def test_a_client_that_leaves_takes_its_request_along() -> None:
    endless, doors, before = Endless(), Doors(), alive()
    async with serving(endless, doors, 3_600) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY)
        await endless.begun.wait()
        assert alive() == before + 1
        writer.close()
        await endless.ended.wait()
        while doors.answered("client_gone") < 1:  # noqa: ASYNC110  the next turns of the loop
            await asyncio.sleep(0)
        assert alive() == before
        assert doors.refusals == []


async def test_a_preparation_without_end_is_refused_at_its_deadline() -> None:
    endless, doors, before = Endless(), Doors(), alive()
    async with serving(endless, doors, 0.05) as port, aiohttp.ClientSession() as session:
        headers = {"authorization": "Bearer k"}
        async with session.post(f"http://127.0.0.1:{port}/", data=BODY[:-1_000] + BODY[-1_000:], headers=headers) as r:
            error = msgspec.json.decode(await r.read())["error"]
            assert (r.status, error["code"], r.headers["retry-after"]) == (503, "preparation_timeout", "1")
        assert endless.ended.is_set()
        (refusal,) = doors.refusals
        assert refusal.caller == KEY.caller
        doors.refusals.clear()
        del refusal
        assert alive() == before


@pytest.mark.parametrize("bad", [0, -1, 3_601])
def test_the_deadline_has_a_range(bad: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"prepare_timeout_s": bad}, RequestConfig)


async def test_refusals_without_a_key_are_paced_by_network_and_customers_are_not() -> None:
    doors, shares = Doors(), LoopShares()
    shares.spend("127.0.0.1", 3_600)
    async with serving(Endless(), doors, 0.05, shares) as port, aiohttp.ClientSession() as session:
        url, customer = f"http://127.0.0.1:{port}/", {"authorization": "Bearer k"}
        stranger = asyncio.create_task(session.post(url, data=b"{}"))
        async with session.post(url, data=BODY, headers=customer) as response:
            assert response.status == 503, "its preparation was ended by the deadline: it came that far"
        assert not stranger.done()
        stranger.cancel()
        await asyncio.gather(stranger, return_exceptions=True)
