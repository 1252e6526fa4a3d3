"""A rival with an OpenAI HTTP server: a closed loop of streamed completions, all from one cheap client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_cpu_rivals.rival import Sample
from contracts.errors import SlipstreamError
from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey

NAME = "bench"
"""The name under which every rival serves the model."""
READY_S = 400.0


class HttpRival:
    """One server and the client's connections to it."""

    def __init__(self, tree: ProcessTree, port: int, build: str) -> None:
        self.build = build
        self._tree = tree
        self._url = f"http://127.0.0.1:{port}"
        self._token = ""
        self._connections: EngineConnections | None = None

    async def ready(self) -> None:
        async with asyncio.timeout(READY_S):
            while True:
                self._tree.require_running()
                with contextlib.suppress(SlipstreamError):
                    status, _ = await self._client().fetch(self._url, EngineRequest("GET", self.health_path()), 5.0)
                    if status == 200:
                        return
                await asyncio.sleep(0.5)

    def health_path(self) -> str:
        """The path that answers 200 once the server is ready."""
        return "/health"

    async def burst(self, prompts: Iterator[list[int]], concurrent: int, tokens: int, seconds: float) -> Sample:
        sample = Sample()
        cpu_s, started_s = self._tree.cpu_s(), time.perf_counter()

        async def loop() -> None:
            while time.perf_counter() < started_s + seconds:
                await self._request(next(prompts), tokens, sample)

        await asyncio.gather(*(loop() for _ in range(concurrent)))
        sample.elapsed_s = time.perf_counter() - started_s
        sample.cpu_s = self._tree.cpu_s() - cpu_s
        return sample

    async def text(self, prompt: list[int], tokens: int) -> str:
        events = await self._events(prompt, tokens)
        decoded = [msgspec.json.decode(event) for _, event in events]
        return "".join(choice["text"] for event in decoded for choice in event["choices"])

    def pause(self) -> None:
        self._tree.pause()

    def resume(self) -> None:
        self._tree.resume()

    def stop(self) -> None:
        self._tree.stop()

    async def _request(self, prompt: list[int], tokens: int, sample: Sample) -> None:
        sent_s = time.perf_counter()
        events = await self._events(prompt, tokens)
        usage = next((found for _, event in reversed(events) if (found := _usage(event))), None)
        if usage is None or usage["completion_tokens"] != tokens:
            raise RuntimeError(f"{self._url}: {tokens} tokens were asked for, the usage is {usage}")
        # end tokens have no text, and some servers send no event for them
        arrived_s = [at_s for at_s, event in events if b'"choices":[]' not in event and b'"text":""' not in event]
        arrived_s = arrived_s or [events[-1][0]]
        sample.tokens += tokens
        sample.first_s.append(arrived_s[0] - sent_s)
        sample.gaps_s += [later - earlier for earlier, later in itertools.pairwise(arrived_s)]

    async def _events(self, prompt: list[int], tokens: int) -> list[tuple[float, bytes]]:
        """Every event of one stream with its time of arrival, undecoded: decoding would take CPU from the engine."""
        body: dict[str, Any] = {
            "model": NAME,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = EngineRequest("POST", "/v1/completions", msgspec.json.encode(body))
        stream = await self._client().open(self._url, request, 30.0)
        events: list[tuple[float, bytes]] = []
        rest = b""
        while data := await stream.read():
            now_s = time.perf_counter()
            *whole, rest = (rest + data).split(b"\n\n")
            events += [(now_s, event[6:]) for event in whole if event.startswith(b"data: {")]
        if stream.status != 200:
            raise RuntimeError(f"{self._url} answered {stream.status}: {rest[:500]!r}")
        return events

    def _client(self) -> EngineConnections:
        if self._connections is None:
            self._connections = EngineConnections(OneKey(self._token))
        return self._connections


def _usage(event: bytes) -> dict[str, int] | None:
    if b'"usage"' not in event:
        return None
    found: dict[str, int] | None = msgspec.json.decode(event).get("usage")
    return found
