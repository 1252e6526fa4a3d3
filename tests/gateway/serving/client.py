"""A client at the level of its socket: the real `ClientConnection` over uvicorn's own cycle, without a network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.http.client_connection import ClientConnection


class Client:
    """Reads whatever it is sent, until it leaves or stops reading."""

    def __init__(self, leave_at_write: int = 0) -> None:
        """leave_at_write: it is gone once so many pieces were written to it; 0: it stays."""
        self._writes = 0
        self._leave_at_write = leave_at_write
        self._wanted: tuple[bytes, asyncio.Event] | None = None
        self._transport = _Transport(self._written)
        self._flow = FlowControl(self._transport)
        self.sent = b""
        """Everything written to its socket."""
        self.connection = ClientConnection(
            RequestResponseCycle(
                scope={"type": "http", "http_version": "1.1"},  # type: ignore[typeddict-item]
                transport=self._transport,
                flow=self._flow,
                logger=logging.getLogger("uvicorn.error"),
                access_logger=logging.getLogger("uvicorn.access"),
                access_log=False,
                default_headers=[],
                message_event=asyncio.Event(),
                expect_100_continue=False,
                keep_alive=True,
                on_response=lambda: None,
            )
        )

    def leave(self) -> None:
        """Close the connection. As with a real socket, that is heard in a turn of the loop of its own."""
        asyncio.get_running_loop().call_soon(self.connection.lost)

    def stop_reading(self) -> None:
        """Let what is written pile up."""
        self._flow.pause_writing()

    def read_on(self) -> None:
        """Take what has piled up."""
        self._flow.resume_writing()

    async def reads(self, text: bytes) -> None:
        """Return once it was sent this."""
        if text not in self.sent:
            self._wanted = text, asyncio.Event()
            await self._wanted[1].wait()

    @property
    def answer(self) -> Answer:
        """What it was sent, as HTTP."""
        return Answer(self.sent)

    def _written(self, data: bytes) -> None:
        self.sent += data
        self._writes += 1
        if self._wanted is not None and self._wanted[0] in self.sent:
            self._wanted[1].set()
        if self._writes == self._leave_at_write:
            self.leave()


class Answer:
    """One parsed response; `complete` only when it ended as HTTP says."""

    def __init__(self, sent: bytes) -> None:
        self.body = b""
        self.headers: dict[str, str] = {}
        self.complete = False
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(sent)
        self.status: int = parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True

    @property
    def json(self) -> Any:
        """The whole body."""
        return msgspec.json.decode(self.body)

    @property
    def events(self) -> list[Any]:
        """Of an event stream: each event's JSON, and "[DONE]". Comments are none."""
        lines = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line and line[:1] != b":"]
        return ["[DONE]" if line == b"[DONE]" else msgspec.json.decode(line) for line in lines]


class _Transport(asyncio.Transport):
    """A socket that is always writable."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._on_write = on_write

    def write(self, data: Any) -> None:
        self._on_write(bytes(data))

    def close(self) -> None:
        pass
