"""A fake engine that tests kill and start again on the port the fleet knows."""

from __future__ import annotations

import contextlib

import msgspec

from engines.drivers.base import EngineRequest
from tests.fakes.process import WAIT_S, FakeEngineProcess, fake_engine


class EnginePlace:
    """A port of the fleet and the fake engine that listens there, if one does."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._running = contextlib.AsyncExitStack()
        self.engine: FakeEngineProcess

    async def start(self, port: int = 0) -> None:
        """Start an engine; port 0 takes a free one."""
        self.engine = await self._running.enter_async_context(fake_engine(token=self._token, port=port))

    async def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self.engine.kill()
        await self._running.aclose()

    async def start_again(self) -> None:
        """A new engine, which knows nothing of the old one's requests, on the same port."""
        await self.start(self.engine.port)

    async def stop(self) -> None:
        """End the process."""
        await self._running.aclose()


async def end_on_engine(engine: FakeEngineProcess, request_id: str) -> None:
    """Make the engine finish a request now, in good order: streams can be as long as a test needs them."""
    request = EngineRequest("POST", "/finish", msgspec.json.encode({"rid": request_id}))
    status, _ = await engine.connections.fetch(engine.url, request, WAIT_S)
    assert status == 200
