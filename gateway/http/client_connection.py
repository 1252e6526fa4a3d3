"""Writes the response of one HTTP exchange, without ASGI in between.

ASGI has two costs that a stream of tokens cannot afford: sending is a coroutine that almost never waits, and only a
caller of `receive()` learns that the client has left. So the gateway's protocol (`gateway.http.client_protocol`) gives
each request a `ClientConnection`, which writes to the socket at once and reports when the client reads too slowly or
has left. uvicorn serves requests that never use theirs. docs/adr/0014 lists the internals of uvicorn that it uses.
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
    # some APIs have their own statuses, such as Anthropic's 529
    status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode()
    for status in range(200, 600)
}

UNSENT_BYTES = 65_536
"""Unsent bytes that the kernel may buffer of an answer whose client is watched."""

_NONE: Headers = []


class ClientConnection:
    """Destination of one response, used either for all of it or not at all."""

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
        """Headers added to the response after its own."""
        self.organization_id = ""
        """The organization of the request's key; empty until the key has been checked."""
        self.counted = False
        """Whether the organization's limits count the request."""
        self.network = network
        """The client's network: its address, or an IPv6 client's /64; empty behind a trusted proxy."""
        self.number = number
        """Number of the request on its connection, from 1."""
        self._head = b""
        self._head_only = cycle.scope.get("method") == "HEAD"
        """Whether the answer has no body, whatever is written: a stream then ends where it begins."""
        self._chunked = False
        self.started = False
        self.ended = False
        self.on_gone: Callable[[], None] | None = None
        """Called once if the client disconnects before the answer's end."""

    def serve(self, organization_id: str) -> None:
        """Record that the request has a valid key of the organization. Within the organization's share, no new
        connection replaces this one until it is answered."""
        self.organization_id = organization_id
        if self._table is not None and self._held is not None and not self._cycle.response_complete:
            self._table.keep(self._held, organization_id)

    def reserved(self) -> None:
        """Record that the organization's limits count the request, which no longer uses the organization's share."""
        self.counted = True
        if self._table is not None and self._held is not None and not self._cycle.response_complete:
            self._table.reserved(self._held)

    def receiving(self) -> None:
        """Restart the timeout of a long body, of which more has arrived."""
        if self._table is not None and self._held is not None and self._held.waiting is Waiting.BODY:
            self._table.wait(self._held, Waiting.BODY)

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected, so that writes are dropped."""
        return self._cycle.disconnected or (self._head_only and self.ended)

    @property
    def full(self) -> bool:
        """Whether the client does not keep up. Wait for `drained` before writing more."""
        return self._cycle.flow.write_paused

    def listen(self) -> None:
        """Resume reading after the body, to notice a disconnect. uvicorn stops reading the socket when more than 64 kB
        of a body wait, and would resume only if another chunk were requested."""
        self._cycle.flow.resume_reading()

    @property
    def unread_bytes(self) -> int:
        """Bytes of the answer that wait here. If they become fewer, the client reads."""
        return self._cycle.transport.get_write_buffer_size()

    def bound(self) -> None:
        """Limit the kernel's buffer, which would take megabytes of the answer and hide progress in `unread_bytes`."""
        sock = self._cycle.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it is closed
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def abort(self) -> None:
        """Break off the answer. Unread bytes are dropped, so the client notices that its answer is incomplete."""
        self._cycle.transport.abort()

    async def drained(self) -> None:
        """Return when the client has read enough, or has left."""
        await self._cycle.flow.drain()

    def start(self, status: int, headers: Headers) -> None:
        """Begin the answer. Its head goes with the first bytes of its body, which is chunked without
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
        if not cycle.keep_alive and not (self._held is not None and self._held.closes_later()):
            cycle.transport.close()
        cycle.on_response()

    def lost(self) -> None:
        self._held = None  # it refers to this request; only the garbage collector would free both
        if self.ended:
            return
        self._cycle.disconnected = True
        self._nobody_reads()

    def _nobody_reads(self) -> None:
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
