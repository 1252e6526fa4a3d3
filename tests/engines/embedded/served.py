"""An engine behind its real HTTP server in this process, which spares the start of one with PyTorch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from engines.embedded.config import EngineConfig
from engines.embedded.http.app import App
from engines.embedded.server import listen, run
from engines.embedded.service import Service
from tests.engines.embedded.engine_process import TOKEN
from tests.waiting import eventually


class Served:
    """One engine that serves on the test's event loop."""

    def __init__(self, service: Service, url: str, serving: asyncio.Task[None]) -> None:
        self.service = service
        self.url = url
        self.serving = serving
        """Done when it has ended."""


@contextlib.asynccontextmanager
async def served(**config: Any) -> AsyncIterator[Served]:
    """Ready to generate; ended at once at the end."""
    service = Service(msgspec.convert({"threads": 1, **config}, EngineConfig))
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        engine = Served(service, url, asyncio.create_task(run(service, App(service, TOKEN, "metrics"), listener)))
        await eventually(lambda: service.ready or service.failure is not None)
        yield engine
        for _ in range(2):  # the second one ends it without draining
            service.stop()
        await engine.serving
