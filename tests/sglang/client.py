"""An SGLang of these tests seen through driver and connections."""

from __future__ import annotations

from contracts.generation import ChatPrompt
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest
from engines.drivers.counters import sums_of_page
from engines.http.engine_connections import EngineConnections
from tests.real_engine import RealEngine
from tests.sglang.server import SGLangServer

DRIVER = drivers.get("sglang")
CHAT = ChatPrompt(({"role": "user", "content": "What is the capital of France?"},))
ENDLESS = {"5": 100.0}
"""A bias that leaves only one token possible: the stream runs until max_tokens."""


class Client(RealEngine):
    """One engine."""

    def __init__(self, server: SGLangServer, connections: EngineConnections) -> None:
        super().__init__(DRIVER, server.url, server.model, connections)
        self.server = server

    async def counter(self, name: str) -> float:
        """One of its page's counters now, all samples together; 0 where it has not counted yet."""
        _, page = await self.fetch(EngineRequest("GET", "/metrics"))
        return sums_of_page(page, lambda found, _: found == name.encode()).get(name.encode(), 0.0)
