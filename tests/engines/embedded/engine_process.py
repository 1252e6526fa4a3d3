"""A real engine process on a port of its own, and how tests speak to it with plain HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import aiohttp

from tests.waiting import GUARD_S, eventually

TOKEN = "secret"
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
START = """
import sys, msgspec
from engines.embedded.config import EngineConfig
from engines.embedded.server import main
import logging; logging.basicConfig(level=logging.INFO)
main(msgspec.json.decode(sys.argv[1], type=EngineConfig), token=sys.argv[2], metrics_token="metrics")
"""


class Process:
    """One engine process on a port of its own."""

    def __init__(self, start: str = START, **config: Any) -> None:
        # by itself an engine takes a thread for each core, whatever OMP_NUM_THREADS says
        arguments = json.dumps({"port": 0, "threads": 1, **config})
        self.child = subprocess.Popen(
            [sys.executable, "-c", start, arguments, TOKEN],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.child.stderr is not None
        self.log: list[str] = []
        self.url = ""
        for line in self.child.stderr:
            self.log.append(line)
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                break

    def end(self) -> str:
        """Wait for it; the rest of its log."""
        _, rest = self.child.communicate(timeout=GUARD_S)
        return "".join(self.log) + rest


async def healthy(process: Process) -> None:
    async with aiohttp.ClientSession() as session:

        async def answers() -> bool:
            async with session.get(f"{process.url}/health") as answer:
                return answer.status == 200

        await eventually(answers)


async def stream_of(session: aiohttp.ClientSession, url: str, rid: str, **change: Any) -> aiohttp.ClientResponse:
    body = {
        "model": "slipstream-chat",
        "messages": QUESTION,
        "stream": True,
        "stream_options": {"include_usage": True},
        "rid": rid,
        "ignore_eos": True,
        "max_tokens": 2000,
        **change,
    }
    return await session.post(f"{url}/v1/chat/completions", json=body)


async def events(answer: aiohttp.ClientResponse) -> list[Any]:
    lines = [line async for line in answer.content if line.startswith(b"data: ")]
    assert lines[-1].strip() == b"data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def usage_of(session: aiohttp.ClientSession, url: str, rid: str) -> tuple[int, Any]:
    async with session.get(f"{url}/usage", params={"rid": rid}) as answer:
        return answer.status, await answer.json()
