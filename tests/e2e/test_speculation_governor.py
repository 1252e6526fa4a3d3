"""Drafts follow the load through the whole platform, before fake engines on the wire: on at low load, off at the peak,
on again, and nothing is sent to an engine that would not understand it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from contracts.speculation import SpeculationRule
from tests.deployment import Deployment, deployment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import eventually

TOKEN = "deployment-token-of-the-tests"
STREAMS = 20
RULE = SpeculationRule(governed=True, off_above_running=2.0, on_below_running=1.9, dwell_s=0.0)
"""Far below the load of the test: its mean is above the one soon after the streams have begun, and below the other soon
after they have ended."""


class Platform:
    """Two pools of one engine each, governed alike."""

    def __init__(self, running: Deployment, engines: dict[str, FakeEngineProcess], session: aiohttp.ClientSession):
        self.running = running
        self.engines = engines
        self._session = session

    async def ask(self, model: str) -> dict[str, Any]:
        """What its engine was sent for one request."""
        before = {one["rid"] for one in await self.engines[model].recorded()}
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
        async with self._session.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.json()
        (sent,) = [one["body"] for one in await self.engines[model].recorded() if one["rid"] not in before]
        assert isinstance(sent, dict)
        return sent

    @contextlib.asynccontextmanager
    async def peak(self, model: str) -> AsyncIterator[None]:
        """Meanwhile so many streams stand still behind their first token."""
        engine = self.engines[model]
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "stream": True}
        await engine.control(hang_after_tokens=1)
        async with contextlib.AsyncExitStack() as streams:
            for _ in range(STREAMS):
                answer = await streams.enter_async_context(self._session.post("/v1/chat/completions", json=body))
                assert answer.status == 200
            await engine.control(reset=True, drafts=5, accepted_drafts=3)
            yield

    async def drafts(self, pool: str) -> str:
        """As `slipstream fleet` tells of a pool: `on` or `off`."""
        fleet = msgspec.json.decode(await self.running.command("fleet", "--json"))
        (told,) = (one["speculation"] for one in fleet["pools"] if one["name"] == pool)
        return str(told).split(":")[0]


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with fake_engine(token=TOKEN) as embedded, fake_engine(token=TOKEN) as sglang:
        engines = {"embedded": embedded, "sglang": sglang}
        for engine in engines.values():
            await engine.control(drafts=5, accepted_drafts=3)
        pools = [
            Pool(name, name, (Replica(f"{name}-0", engine.url),), max_concurrency=64, speculation=RULE)
            for name, engine in engines.items()
        ]
        models = [Model(name, Tier.CHAT, name, 4_096, engine_model="fake") for name in engines]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
        }
        async with deployment(environment=environment, token=TOKEN) as running:
            headers = {"authorization": f"Bearer {running.key}"}
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(running.url, headers=headers, connector=connector) as session:
                yield Platform(running, engines, session)


@pytest.mark.nightly
async def test_drafting_is_on_at_low_load_off_at_the_peak_and_back(platform: Platform) -> None:
    assert "speculation" not in await platform.ask("embedded")
    async with platform.peak("embedded"):
        await eventually(lambda: is_(platform, "off"))
        assert (await platform.ask("embedded"))["speculation"] is False
    await eventually(lambda: is_(platform, "on"))
    assert "speculation" not in await platform.ask("embedded")

    # an engine with a table of its own is told nothing, however much it has to do
    async with platform.peak("sglang"):
        assert "speculation" not in await platform.ask("sglang")
    assert await platform.drafts("sglang") == "by the engines' own table of drafts by batch; nothing is sent"

    await asyncio.gather(*(platform.ask(model) for model in platform.engines))
    await platform.running.command("usage", "verify")
    told = await platform.running.command("usage", "drafts", "--json")
    shown = {one["model"]: one for one in map(msgspec.json.decode, told.splitlines())}
    for model in platform.engines:
        assert shown[model]["acceptance"] == pytest.approx(3 / 5)
        assert shown[model]["organization"] == "demo"


async def is_(platform: Platform, state: str) -> bool:
    return await platform.drafts("embedded") == state
