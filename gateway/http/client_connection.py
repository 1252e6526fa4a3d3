"""The client's half of one HTTP exchange, without ASGI in between.

ASGI has two habits that a stream of tokens cannot afford: sending is a coroutine that almost never waits, and only a
caller of `receive()` learns that the client has left. So our protocol (`gateway.http.client_protocol`) hands each
request a `ClientConnection`: it writes to the socket at once, and reports when the client reads too slowly and when it
is gone. uvicorn serves requests that never take theirs. Relies on uvicorn's internals; docs/adr/0014 says which, and
what holds them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.http.connections import ConnectionTable, Held, Waiting
from gateway.wire.errors import Headers

SCOPE_KEY = "slipstream.connection"

PHRASES = {status.value: status.phrase for status in HTTPStatus}
STATUS_LINES = {
    # some APIs have statuses of their own, such as Anthropic's 529
    status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode()
    for status in range(200, 600)
}

UNSENT_BYTES = 65_536
"""Unsent bytes that the system holds of an answer whose client is watched."""

_NONE: Headers = []


class ClientConnection:
    """Destination of one response. Used either for the whole response or not at all."""

    __slots__ = (
        "_chunked",
        "_cycle",
        "_head",
        "_head_only",
        "_held",
        "_table",
        "added",
        "counted",
        "ended",
        "network",
        "number",
        "on_gone",
        "organization_id",
        "started",
    )

    def __init__(
        self,
        cycle: RequestResponseCycle,
        network: str = "",
        number: int = 1,
        held: Held | None = None,
        table: ConnectionTable | None = None,
    ) -> None:
        self._cycle = cycle
        self._held = held
        self._table = table
        self.added: Headers = _NONE
        """Headers added to each response here, after its own."""
        self.organization_id = ""
        """The organization of the request's key; empty: the key has not been checked."""
        self.counted = False
        """The organization's limits count the request."""
        self.network = network
        """The client's network: its address, or an IPv6 client's /64; empty behind a trusted proxy."""
        self.number = number
        """Number of the request on its connection, from 1."""
        self._head = b""
        self._head_only = cycle.scope.get("method") == "HEAD"
        """The answer has no body, whatever is written: a stream ends where it begins."""
        self._chunked = False
        self.started = False
        self.ended = False
        self.on_gone: Callable[[], None] | None = None
        """Called once when the client has disconnected before the answer's end."""

    def serve(self, organization_id: str) -> None:
        """The request came with a good key: within that organization's share, no new connection replaces this one
        until it is answered."""
        self.organization_id = organization_id
        if self._table is not None and self._held is not None and not self._cycle.response_complete:
            self._table.keep(self._held, organization_id)

    def reserved(self) -> None:
        """The organization's limits count the request, which no longer uses the organization's share."""
        self.counted = True
        if self._table is not None and self._held is not None and not self._cycle.response_complete:
            self._table.reserved(self._held)

    def receiving(self) -> None:
        """A long body is on its way: the time that the rest may take begins again."""
        if self._table is not None and self._held is not None and self._held.waiting is Waiting.BODY:
            self._table.wait(self._held, Waiting.BODY)

    @property
    def gone(self) -> bool:
        """The client has disconnected; writes are dropped."""
        return self._cycle.disconnected or (self._head_only and self.ended)

    @property
    def full(self) -> bool:
        """The client does not keep up: wait for `drained` before writing more."""
        return self._cycle.flow.write_paused

    def listen(self) -> None:
        """Resume reading after the body, to notice a disconnect. uvicorn stops reading the socket when more than 64 kB
        of a body wait, and would resume only if another chunk were requested."""
        self._cycle.flow.resume_reading()

    @property
    def unread_bytes(self) -> int:
        """Bytes of the answer that wait here: fewer than before, and the client reads."""
        return self._cycle.transport.get_write_buffer_size()

    def bound(self) -> None:
        """Have the system hold little of the answer: else it takes megabytes, and `unread_bytes` shows no progress."""
        held = self._cycle.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it has closed
            held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def abort(self) -> None:
        """Break off: unread bytes are dropped, and the client knows that its answer is not whole."""
        self._cycle.transport.abort()

    async def drained(self) -> None:
        """Return when the client has read enough, or is gone."""
        await self._cycle.flow.drain()

    def start(self, status: int, headers: Headers) -> None:
        """Begin the answer. Its head leaves with the first bytes of its body, which is chunked unless there is a
        `content-length`."""
        cycle = self._cycle
        head = [STATUS_LINES[status]]
        self._chunked = status >= 200
        for name, value in [*headers, *self.added] if self.added else headers:
            if b"\n" in value or b"\r" in value:
                raise ValueError(f"header {name!r}: a line break in its value")
            if name == b"content-length":
                self._chunked = False
            head += (name, b": ", value, b"\r\n")
        if cycle.scope["http_version"] != "1.1":
            self._chunked = cycle.keep_alive = False
        if self._chunked:
            head.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        self._head = b"".join(head)
        self.started = cycle.response_started = True

    def write(self, data: bytes) -> None:
        """Send a chunk of the body now."""
        if self._head_only:
            self._end_head()
            return
        if self._chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data = self._head + data
            self._head = b""
        if data and not self._cycle.disconnected:
            self._cycle.transport.write(data)

    def end(self, data: bytes) -> None:
        """Send the last chunk; the connection is free for the client's next request."""
        if self._head_only:
            self._end_head()
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._end(data)

    def _end_head(self) -> None:
        """Answer HEAD; a handler that keeps writing sees its client as gone."""
        if self.ended:
            return
        self._end(b"")
        self._nobody_reads()

    def _end(self, data: bytes) -> None:
        cycle = self._cycle
        self.ended = True
        if not cycle.disconnected:
            cycle.transport.write(self._head + data)
        self._head = b""
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def lost(self) -> None:
        if self.ended:
            return
        self._cycle.disconnected = True
        self._nobody_reads()

    def _nobody_reads(self) -> None:
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
