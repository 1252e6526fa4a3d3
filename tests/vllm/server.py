"""Starts the real vLLM for tests marked `vllm`.

SLIPSTREAM_TEST_VLLM_VENV is a virtual environment with vLLM for the CPU, as `tests/vllm/install.sh` makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from engines.drivers import registry as drivers
from tests.real_engine import until_ready
from tests.sglang.server import MODELS, free_port

FOLDER = MODELS / "slipstream-chat"
END_S = 20.0
MODEL = "tiny"
TOKEN = "engine-token"
RUNNING = 4
"""Requests at a time."""
BLOCKS = 40
"""Of `BLOCK_TOKENS` each: less than four of the longest requests need."""
BLOCK_TOKENS = 128
"""vLLM's own choice on a CPU."""
CONTEXT_TOKENS = 2_048
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
PLAIN = (
    "--served-model-name", MODEL, "--api-key", TOKEN, "--dtype", "bfloat16", "--enforce-eager",
    "--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(RUNNING),
    "--num-gpu-blocks-override", str(BLOCKS), "--enable-prompt-tokens-details",
)  # fmt: skip
"""Of every server here."""
FULL = ("--scheduling-policy", "priority", "--enable-scale-out", "--enable-per-request-metrics")
"""Of those whose every feature is asked for."""


class VLLMServer(msgspec.Struct, frozen=True):
    """A server that answers."""

    url: str
    token: str
    model: str
    """The name it serves."""
    folder: Path
    kv_events: str
    """Where it publishes them."""
    kv_events_replay: str
    """Where it repeats them."""


def venv() -> Path | None:
    """The virtual environment, or None where this machine has none."""
    named = os.environ.get("SLIPSTREAM_TEST_VLLM_VENV")
    return Path(named) if named else None


class VLLMProcess:
    """One that can be killed and started again at the same ports. flags: further options of `vllm serve`. environment:
    further variables. folder: its model's."""

    def __init__(self, *flags: str, environment: Mapping[str, str] | None = None, folder: Path = FOLDER) -> None:
        found = venv()
        assert found is not None, "SLIPSTREAM_TEST_VLLM_VENV must be set"
        http, events, replay = (free_port() for _ in range(3))
        self.server = VLLMServer(
            f"http://127.0.0.1:{http}", TOKEN, MODEL, folder, f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        )
        published = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "topic": "kv-events",
            "endpoint": f"tcp://*:{events}",
            "replay_endpoint": f"tcp://*:{replay}",
        }
        self._command = (
            str(found.absolute() / "bin" / "vllm"), "serve", str(folder), "--host", "127.0.0.1", "--port", str(http),
            "--kv-events-config", json.dumps(published), *PLAIN, *flags,
        )  # fmt: skip
        self._environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """Return once it serves. Raises AssertionError with the end of its log when it ends before."""
        # A folder named vllm in the working directory would shadow the package. It must be there as long as vLLM runs:
        # what vLLM compiles later it compiles from there, and ends where it cannot.
        self._elsewhere = tempfile.TemporaryDirectory()
        with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log, start_new_session=True, cwd=self._elsewhere.name,
                env=self._environment,
            )  # fmt: skip
            await until_ready(self._process, drivers.get("vllm"), self.server.url, TOKEN, Path(log.name))

    async def kill(self) -> None:
        """kill -9: its scheduler and its worker are its children, so the whole group."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    async def end(self) -> None:
        """Politely, or it leaves shared memory behind."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_S)
        await self.kill()


@contextlib.asynccontextmanager
async def vllm_process(
    *flags: str, environment: Mapping[str, str] | None = None, folder: Path = FOLDER
) -> AsyncIterator[VLLMProcess]:
    """One that serves; ended at the end."""
    process = VLLMProcess(*flags, environment=environment, folder=folder)
    try:
        await process.start()
        yield process
    finally:
        await process.end()
