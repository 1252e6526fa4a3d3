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

from engines.drivers import registry as drivers
from tests.real_engine import until_ready

PORTS = range(20_000, 32_000)
"""Below the ports that a system gives to outgoing connections. SGLang binds its port half a minute after it was told
which, and does not end when somebody else's connection has taken it by then: it hangs."""
MODELS = Path(__file__).parents[2] / "models"
UNSET = "SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set"
UNPINNED = Path(__file__).parent / "unpinned"


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


class SGLangProcess:
    """SGLang's server as processes of this machine. It keeps its port when it is started again."""

    def __init__(self, folder: Path, model: str, token: str, *flags: str, unpinned: bool = False) -> None:
        """token: empty for a server that asks for none. flags: further SGLang options. unpinned: with what lets it
        serve adapters on a CPU (`unpinned/sitecustomize.py`)."""
        found = settings()
        assert found is not None, UNSET
        venv, self._serve = found
        self.server = SGLangServer(f"http://127.0.0.1:{free_port()}", token, model, folder, venv)
        self._flags = (*(("--api-key", token) if token else ()), *flags)
        self._unpinned = unpinned
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that serves HTTP and gRPC. Raises AssertionError when it is not running."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Return once it is warm. Raises AssertionError with the end of its log when it ends before."""
        server = self.server
        with tempfile.NamedTemporaryFile("w+", suffix=".log") as log, tempfile.TemporaryDirectory() as beside:
            venv = _unpinned(server.venv, Path(beside)) if self._unpinned else server.venv
            self._process = await asyncio.create_subprocess_exec(
                "bash", str(self._serve), str(venv), str(server.folder), server.url.rpartition(":")[2],
                # else a scheduler without requests takes a core from whatever is tested
                "--sleep-on-idle", "--served-model-name", server.model, *self._flags,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            await until_ready(self._process, drivers.get("sglang"), server.url, server.token, Path(log.name))

    async def kill(self) -> None:
        """kill -9: the scheduler and the detokenizer are its children, so the whole group."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@contextlib.asynccontextmanager
async def sglang_process(
    folder: Path, model: str, token: str, *flags: str, unpinned: bool = False
) -> AsyncIterator[SGLangProcess]:
    """One that is warm; killed at the end."""
    process = SGLangProcess(folder, model, token, *flags, unpinned=unpinned)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


@contextlib.asynccontextmanager
async def sglang_server(
    folder: Path, model: str, token: str, *flags: str, unpinned: bool = False
) -> AsyncIterator[SGLangServer]:
    """A running server, warm. flags: further SGLang options."""
    async with sglang_process(folder, model, token, *flags, unpinned=unpinned) as process:
        yield process.server


def free_port() -> int:
    """One that nobody uses and that no connection will be given."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port between {PORTS.start} and {PORTS.stop} is free")


def _unpinned(venv: Path, beside: Path) -> Path:
    """A folder that is called as the virtual environment is, whose Python finds our `sitecustomize` first: the script
    that serves says itself where its processes look."""
    python = beside / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={UNPINNED}:$PYTHONPATH exec {venv}/bin/python "$@"\n')
    python.chmod(0o755)
    return beside
