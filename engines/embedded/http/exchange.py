"""One HTTP request and its response, over plain ASGI."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

import msgspec

from contracts.errors import BodyTooLarge

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]
Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
EVENT_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class Exchange:
    """Reads the body once and responds once."""

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.started = False
        """Whether the status line has been sent."""
        self.arrived_ns = time.time_ns()
        """Arrival in nanoseconds since 1970."""
        self.observer = False
        """Whether the request came with the metrics token."""
        self._scope = scope
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> str:
        """A request header's value; "" if absent. name: in lower case."""
        headers: list[Header] = self._scope["headers"]
        return next((str(value, "latin-1") for key, value in headers if key == name), "")

    def query(self, name: str) -> str:
        """A query parameter's first value; "" if absent."""
        raw: bytes = self._scope["query_string"]
        return parse_qs(raw.decode("latin-1")).get(name, [""])[0]

    async def body(self, limit_bytes: int) -> bytes:
        """The whole request body. Raises BodyTooLarge."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit_bytes:
                raise BodyTooLarge(f"The body is larger than {limit_bytes} bytes.")
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def on_disconnect(self, callback: Callable[[], object]) -> asyncio.Task[None]:
        """Call `callback` when the client disconnects. Use it after the body is read; cancel it after the response."""

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            callback()

        return asyncio.create_task(watch())

    async def answer(self, status: int, body: bytes, *headers: Header) -> None:
        """Send a whole response."""
        self.started = True
        length = (b"content-length", str(len(body)).encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body})

    async def answer_json(self, value: object, status: int = 200) -> None:
        """Send a JSON response."""
        await self.answer(status, msgspec.json.encode(value), JSON)

    async def start_events(self) -> None:
        """Begin an event stream."""
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM)})

    def try_write(self, data: bytes) -> bool:
        """Send a part of an event stream now. Returns False without effect if the client is slow; `write` waits.

        uvicorn's `send` waits only before it writes, so a coroutine that does not end at its first step has written
        nothing.
        """
        attempt = self._send({"type": "http.response.body", "body": data, "more_body": True})
        try:
            attempt.send(None)
        except StopIteration:
            return True
        attempt.close()
        return False

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of an event stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
