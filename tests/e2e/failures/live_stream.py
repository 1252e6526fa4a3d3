"""A chat stream that is read in the background while the test breaks things."""

from __future__ import annotations

import asyncio
from typing import Any

import openai

from tests.deployment import Deployment
from tests.e2e.failures.processes import gateway_of
from tests.fakes.process import FakeEngineProcess


class LiveStream:
    """One stream. `finished` reads it to its end."""

    def __init__(self, request_id: str, gateway: str, stream: openai.AsyncStream[Any]) -> None:
        self.request_id = request_id
        self.gateway = gateway
        """The instance that serves it."""
        self.text = ""
        self.finish: str | None = None
        self._task = asyncio.create_task(self._read(stream))

    async def finished(self) -> None:
        """Return at its end. Raises what the SDK raised."""
        await self._task

    async def leave(self) -> None:
        """Close the connection in the middle."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def failure(self) -> openai.APIError:
        """The error it ends in."""
        try:
            await self._task
        except openai.APIError as error:
            return error
        raise AssertionError(f"{self.request_id} ended well")

    @property
    def tokens(self) -> int:
        """How many tokens of the fake engine have come."""
        return len(self.text.split())

    async def _read(self, stream: openai.AsyncStream[Any]) -> None:
        async with stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    self.text += choice.delta.content or ""
                    self.finish = choice.finish_reason or self.finish


async def open_stream(
    client: openai.AsyncOpenAI,
    deployment: Deployment,
    *,
    model: str = "fake",
    content: str = "Tell me a story.",
    max_tokens: int = 3_000,
) -> LiveStream:
    """Returns once the engine has begun to answer."""
    raw = await client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": content}], max_tokens=max_tokens, stream=True
    )
    gateway = gateway_of(deployment, raw.http_response)
    return LiveStream(raw.headers["x-request-id"], gateway, raw.parse())


async def open_on_both(client: openai.AsyncOpenAI, deployment: Deployment, *, at_least: int) -> list[LiveStream]:
    """Streams until there are enough and both gateways have one. The client must use fresh connections."""
    streams: list[LiveStream] = []
    while len(streams) < at_least or len({stream.gateway for stream in streams}) < 2:
        streams.append(await open_stream(client, deployment))
    return streams


async def record_of(engines: list[FakeEngineProcess], rid: str) -> tuple[FakeEngineProcess, dict[str, Any]]:
    """The engine that had a request, and what it recorded."""
    for engine in engines:
        for record in await engine.recorded(rid):
            return engine, record
    raise AssertionError(f"no engine has seen {rid}")
