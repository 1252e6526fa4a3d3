"""An engine that says an event when it is told to, for tests in which time is what they say it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from contracts.lease import Engine

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class SteppedEngine:
    """Use `stepped_engine`. Answers one request, in SGLang's words."""

    def __init__(self) -> None:
        self._writer: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    @property
    def asked(self) -> bool:
        """It has its request."""
        return self._writer.done()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection: its request is read, and not looked at."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(HEAD)
        self._writer.set_result(writer)

    async def say(self, *texts: str, ends: bool = False, tokens: int = 0) -> None:
        """One write of an event a text. ends: with what ends the answer, and a usage of so many tokens, behind them."""
        deltas = [{"delta": {"content": text}, "finish_reason": None} for text in texts]
        events: list[Any] = [{"choices": [{"index": 0, **delta}]} for delta in deltas]
        if ends:
            events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
            events.append({"choices": [], "usage": usage})
        frames = [{"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", **one} for one in events]
        payloads = [*map(msgspec.json.encode, frames), *([b"[DONE]"] if ends else [])]
        data = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
        await self.write(b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if ends else b""))

    async def write(self, data: bytes) -> None:
        """Bytes of the answer as they are."""
        (await self._writer).write(data)


@contextlib.asynccontextmanager
async def stepped_engine() -> AsyncIterator[tuple[SteppedEngine, Engine]]:
    """The engine, and what a router says of it."""
    stepped = SteppedEngine()
    server = await asyncio.start_server(stepped.accept, "127.0.0.1", 0)
    async with server:
        yield stepped, Engine("stepped-0", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "sglang", "m", "p")
        writer = await stepped._writer
        writer.close()
        await writer.wait_closed()
