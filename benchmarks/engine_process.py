"""One embedded engine in a process of its own, for benchmarks that call it over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

TOKEN = "benchmark"
START = """
import sys, logging, msgspec
from engines.embedded.config import EngineConfig
from engines.embedded.server import main
logging.basicConfig(level=logging.INFO)
main(msgspec.json.decode(sys.argv[1], type=EngineConfig), token=sys.argv[2])
"""


@contextmanager
def engine(config: dict[str, Any], nice: int = 0) -> Iterator[str]:
    """Start an engine on a free port and yield its URL once it serves. nice: the niceness of its process."""
    with engine_and_pid(config, nice) as (url, _):
        yield url


@contextmanager
def engine_and_pid(config: dict[str, Any], nice: int = 0) -> Iterator[tuple[str, int]]:
    """As `engine`, but yield its URL and its process id."""
    child = subprocess.Popen(
        ["nice", "-n", str(nice), sys.executable, "-c", START, json.dumps({"port": 0, **config}), TOKEN],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(config.get("threads", 1))},
    )
    try:
        assert child.stderr is not None
        log = []
        for line in child.stderr:
            log.append(line)
            if "serving" in line:
                break
        listening = [line for line in log if "listening on " in line]
        if not listening:
            raise RuntimeError("the engine did not start:\n" + "".join(log))
        yield listening[0].split("listening on ")[1].strip(), child.pid
    finally:
        child.terminate()
        child.communicate()


def session() -> aiohttp.ClientSession:
    """A client that sends the engine's token and has no limit on connections."""
    return aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}, connector=aiohttp.TCPConnector(limit=0))


async def stream(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> AsyncIterator[tuple[float, Any]]:
    """Request a completion, or a chat completion if the body has `messages`; yields (monotonic time of arrival in
    seconds, decoded event) for every event."""
    path = "chat/completions" if "messages" in body else "completions"
    body = {"stream": True, "stream_options": {"include_usage": True}, **body}
    async with client.post(f"{url}/v1/{path}", json=body) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {await answer.text()}")
        async for line in answer.content:
            if line.startswith(b"data: {"):
                yield time.perf_counter(), json.loads(line[6:])
