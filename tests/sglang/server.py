"""Starts the real SGLang for tests marked `sglang`.

SLIPSTREAM_TEST_SGLANG_VENV is a virtual environment with SGLang, SLIPSTREAM_TEST_SGLANG_SERVE a script called as
`SERVE VENV MODEL_FOLDER PORT [sglang flags…]` that runs its server in the foreground.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from contracts.errors import SlipstreamError
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey

READY_S = 600.0
"""A guard: ready takes 40 to 75 s on two busy cores, several times as long beside other engines."""
PORTS = range(20_000, 32_000)
"""Below the ports that a system gives to outgoing connections. SGLang binds its port half a minute after it was told
which, and does not end when somebody else's connection has taken it by then: it hangs."""
MODELS = Path(__file__).parents[2] / "models"


class SGLangServer(msgspec.Struct, frozen=True):
    """A server that answers."""

    url: str
    token: str
    model: str
    """The name it serves."""
    folder: Path
    venv: Path


def settings() -> tuple[Path, Path] | None:
    """The virtual environment and the script, or None where this machine has none."""
    venv, serve = (os.environ.get(f"SLIPSTREAM_TEST_SGLANG_{name}") for name in ("VENV", "SERVE"))
    return (Path(venv), Path(serve)) if venv and serve else None


@contextlib.asynccontextmanager
async def sglang_server(folder: Path, model: str, token: str, *flags: str) -> AsyncIterator[SGLangServer]:
    """A running server, warm. flags: further SGLang options."""
    found = settings()
    assert found is not None, "SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE must be set"
    venv, serve = found
    port = free_port()
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            "bash", str(serve), str(venv), str(folder), str(port),
            "--served-model-name", model, "--api-key", token, *flags,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            await _ready(process, f"http://127.0.0.1:{port}", token, Path(log.name))
            yield SGLangServer(f"http://127.0.0.1:{port}", token, model, folder, venv)
        finally:
            # the scheduler and detokenizer are its children: the whole group must go
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def free_port() -> int:
    """One that nobody uses and that no connection will be given."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port between {PORTS.start} and {PORTS.stop} is free")


async def _ready(process: asyncio.subprocess.Process, url: str, token: str, log: Path) -> None:
    connections = EngineConnections(OneKey(token))
    try:
        async with asyncio.timeout(READY_S):
            while process.returncode is None:
                with contextlib.suppress(SlipstreamError):
                    if (await connections.fetch(url, drivers.get("sglang").health(), 5))[0] == 200:
                        return
                await asyncio.sleep(0.5)
    finally:
        await connections.close()
    said = await asyncio.to_thread(log.read_text)
    raise AssertionError(f"SGLang ended before it was ready:\n{said[-3000:]}")
