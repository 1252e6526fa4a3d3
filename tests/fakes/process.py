"""Starts the fake engine as a child process and talks to its control endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.waiting import GUARD_S, START_S

ROOT = Path(__file__).parents[2]
WAIT_S = GUARD_S
"""Of each request to its control endpoints."""


class FakeEngineProcess:
    """A running fake engine. Use `fake_engine`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, token: str) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.token = token
        self.connections = EngineConnections(OneKey(token))

    async def control(self, **fields: Any) -> None:
        """Change the default script (fields of `Script`), `healthy`, or `reset=True`."""
        await self._fetch("POST", "/control", msgspec.json.encode(fields))

    async def recorded(self, rid: str | None = None) -> list[dict[str, Any]]:
        """What happened to every request of a client, oldest first: fields of `Record`. Not the router's own."""
        found = await self._fetch("GET", "/recorded" + ("" if rid is None else "?" + urlencode({"rid": rid})))
        return [record for record in found if not record["rid"].startswith("probe_")]

    async def wait(self, **counts: int) -> list[dict[str, Any]]:
        """The records, once so many requests were received, `ended`, `finished`, `aborted`, `disconnected`, or so many
        `tokens` were generated in all."""
        return list(await self._fetch("GET", "/wait?" + urlencode(counts)))

    async def finish(self, rid: str) -> None:
        """End a request in good order, however much was still to come."""
        await self._fetch("POST", "/finish", msgspec.json.encode({"rid": rid}))

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)

    async def _fetch(self, method: str, path: str, body: bytes = b"") -> Any:
        status, answer = await self.connections.fetch(self.url, EngineRequest(method, path, body), WAIT_S, 1 << 28)
        assert status == 200, answer
        return msgspec.json.decode(answer)


@contextlib.asynccontextmanager
async def fake_engine(
    token: str = "secret", model: str = "fake", port: int = 0, options: Sequence[str] = ()
) -> AsyncIterator[FakeEngineProcess]:
    """A fake engine on a free port, killed at the end. options: more of its command line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.engine", "--port", str(port), "--token", token, "--model", model,
        *options,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        engine = FakeEngineProcess(process, int(line.split()[1]), token)
        try:
            yield engine
        finally:
            await engine.connections.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
