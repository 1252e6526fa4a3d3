"""A pool of real embedded engines drafts at low load, not at its peak, and again behind it: switched by the load while
the engine runs, and seen in what the ledger says each request was drafted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.deployment import Deployment, deployment
from tests.waiting import eventually

pytestmark = pytest.mark.nightly
SETTINGS = """
[[models]]
name = "chat"
tier = "chat"
pool = "chat"
context_tokens = 2_048

[[pools]]
name = "chat"
driver = "embedded"

[pools.engine]
model = "slipstream-chat"
dtype = "float32"
kv = { budget_bytes = 134_217_728 }
speculation = { method = "ngram", governed = false }

[pools.speculation]
governed = true
off_above_running = 3.0
on_below_running = 1.5
dwell_s = 1.0
"""
PEAK = 6
AGAIN = "Repeat this list exactly, twice: " + "red green blue red green blue red green blue. " * 12
"""What an answer quotes is what n-grams guess."""


class Platform:
    """One engine that guesses n-grams, and what was asked of it."""

    def __init__(self, running: Deployment, session: aiohttp.ClientSession) -> None:
        self.running = running
        self._session = session

    async def drafted(self) -> int:
        """Tokens guessed ahead for one more request, as the ledger has them."""
        body = {**_asks(max_tokens=96), "temperature": 0}
        async with self._session.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            request_id = answer.headers["x-request-id"]
            await answer.json()
        (row,) = await self.running.ledger(request_id)
        return int(row["draft_tokens"])

    @contextlib.asynccontextmanager
    async def peak(self) -> AsyncIterator[None]:
        """Meanwhile so many streams are written, each begun anew when it ends."""
        streams = [asyncio.create_task(self._stream_on()) for _ in range(PEAK)]
        try:
            yield
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    async def _stream_on(self) -> None:
        while True:
            async with self._session.post("/v1/chat/completions", json=_asks(max_tokens=1_000, stream=True)) as answer:
                async for _ in answer.content:
                    pass

    async def is_(self, state: str) -> bool:
        """Whether drafts are `on` or `off`, as `slipstream fleet` tells of the pool."""
        fleet = msgspec.json.decode(await self.running.command("fleet", "--json", accept=(0, 1)))
        (told,) = (one["speculation"] for one in fleet["pools"])
        return str(told).split(":")[0] == state


def _asks(**more: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": AGAIN}], **more}


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    file = tmp_path / "slipstream.toml"
    file.write_text(SETTINGS)
    async with deployment(options=("--config", str(file))) as running:
        headers = {"authorization": f"Bearer {running.key}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(running.url, headers=headers, connector=connector) as session:
            yield Platform(running, session)


async def test_an_engine_that_runs_is_switched_by_the_load_and_back(platform: Platform) -> None:
    await eventually(lambda: platform.is_("on"))  # the router starts it off, and looks at the load first
    assert await platform.drafted() > 0
    async with platform.peak():
        await eventually(lambda: platform.is_("off"))
        assert await platform.drafted() == 0, "granted at the peak"
    await eventually(lambda: platform.is_("on"))
    assert await platform.drafted() > 0
