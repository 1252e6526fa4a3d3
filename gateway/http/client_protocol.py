"""Serves a client's connection with uvicorn's HTTP/1.1, and bounds what it may hold before it is authenticated.

Every connection counts from the moment it is accepted, with or without TLS, and is always either served or in the table
with a deadline (`connections.py`). No connection costs a timer, and a streaming response costs nothing here. The module
relies on uvicorn's internals; docs/adr/0014 lists them and their checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import ssl
import struct
import termios
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from contracts.dated_request_id import mint
from contracts.errors import RequestError, RequestTimeout, SlipstreamError
from gateway.http.certificate import Certificate
from gateway.http.client_connection import SCOPE_KEY, STATUS_LINES, ClientConnection
from gateway.http.connections import SWEEP_S, ConnectionTable, Waiting
from gateway.http.request_head import refusal_of, too_large
from gateway.http.upgrade_offer import framing_of, read_on
from gateway.wire.errors import body_of, headers_of, status_of

MAX_PIPELINED = 16
"""Requests that may wait after the one in service; one read of the socket could hold thousands."""
HIGH_WATER_BYTES = 65_536
"""The limit of plain connections; uvloop's TLS would buffer eight times as much before it reports a slow client."""

READ_PART = 0.1
"""Part of an unread answer that a client must read in each wait, on average, to get the same time for the rest."""

logger = logging.getLogger(__name__)


class Refused(Exception):
    """Stops the parser; the protocol has the answer."""


class ClientProtocol(HttpToolsProtocol):
    """One connection; puts a `ClientConnection` into the scope of every request."""

    def __init__(
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
        certificate: Certificate | None = None,
    ) -> None:
        """Like uvicorn's, with the process's table and, for TLS, its certificate."""
        super().__init__(config, server_state, app_state, _loop)
        self.network = ""
        self.waiting: Waiting | None = None
        self.kept_for: str | None = None
        self._table = table
        self._certificate = certificate
        self._raw: asyncio.Transport | None = None
        self._below: asyncio.Transport | None = None
        """With TLS, the transport below it."""
        self._early = b""
        self._receiving: Waiting | None = None
        """The part of a request that the parser is reading."""
        self._framing_bytes = 0
        """Bytes of heads and trailers that have arrived since the last byte of a body."""
        self._offered_framing = b""
        """The framing of the body after the last head that offered an upgrade."""
        self._refusal: SlipstreamError | None = None
        """The error that stopped the parser."""
        self._over = False
        """Whether further bytes are discarded."""
        self._last_word: SlipstreamError | None = None
        """A refusal to send after the earlier answers."""
        self._closes = False
        """Whether the answered connection is closed once the rest of its request's body has come."""
        self._ended = False
        """Whether the last bytes have been written, which the client may still read."""
        self._served: RequestResponseCycle | None = None
        """The request in service, or the last one served."""
        self._connection: ClientConnection | None = None
        self._begun = 0
        """Number of requests so far."""
        self._handshake: asyncio.Task[None] | None = None
        self._unread_bytes = 0
        """Unread bytes of the answer when the wait for their reader began, or was last extended."""
        self._part_bytes = 0
        """Bytes that the client must read in each wait, on average."""
        self._allowed_bytes = 0
        """The most that may be unread at the end of this wait if it is to be extended."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when the connection is accepted, with TLS before its handshake."""
        peer = transport.get_extra_info("peername")
        self._raw = transport
        self.network = self._table.network_of(peer[0]) if peer else ""
        refusal = self._table.admit(self)
        if refusal is not None:
            self._over = True
            if self._certificate is None:
                transport.write(_answer(refusal))
                transport.write_eof()
                self._table.linger(self)
            else:  # a response would cost a handshake, and a slot for as long
                transport.close()
        elif self._certificate is None:
            super().connection_made(transport)
        else:
            self._handshake = self.loop.create_task(self._secure(transport, self._certificate.context))

    async def _secure(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        transport = None
        try:
            if plain.is_closing():
                return
            starting = self.loop.create_task(
                self.loop.start_tls(
                    plain,
                    self,
                    context,
                    server_side=True,
                    ssl_handshake_timeout=self._table.config.head_timeout_s,
                    # enough for all parts of an unread answer; the table ends the wait for a client that does not read
                    ssl_shutdown_timeout=(self._table.config.unread_timeout_s + SWEEP_S) * (1 + 1 / READ_PART),
                )
            )
            await asyncio.sleep(0)  # TLS takes the socket over …
            await asyncio.sleep(0)  # … and is ready to read
            self._hand_over(plain)
            transport = await starting
        except OSError as error:  # includes errors and timeouts of TLS
            logger.debug("TLS handshake failed: %s", error)
        finally:
            if transport is None:
                self._table.forget(self)  # no other callback reports a connection that is lost before TLS is set up
                plain.abort()
        if transport is None or transport.is_closing():
            self._table.forget(self)
            return
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._raw, self._below = transport, plain
        super().connection_made(transport)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _hand_over(self, plain: asyncio.Transport) -> None:
        """Give TLS the bytes that arrived before it had the socket: the loop reads from the connection's start."""
        early, self._early = self._early, b""
        protocol: Any = plain.get_protocol()  # the loop's own type, an asyncio.BufferedProtocol in all but name
        while early and not plain.is_closing():
            buffer = protocol.get_buffer(len(early))
            size = min(len(buffer), len(early))
            buffer[:size] = early[:size]
            protocol.buffer_updated(size)
            early = early[size:]

    def shutdown(self) -> None:
        """Called when the server stops: close if no request is in service, and no client still sends or reads."""
        if self._receiving is Waiting.BODY and self.cycle.response_complete and not self._ended:
            self._discard_rest()
        elif not self._ended:
            super().shutdown()
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the client has left, or the gateway has closed the connection."""
        self._table.forget(self)
        if self.transport is None:
            return  # it was refused, or its handshake failed
        connection = self._connection
        super().connection_lost(exc)
        # uvicorn notifies only the newest request, which may still wait in the pipeline
        if connection is not None:
            connection.lost()

    def data_received(self, data: bytes) -> None:
        """Called with bytes of requests, split anywhere."""
        if self._over:
            return
        if self.transport is None:
            self._early += data  # before TLS has the socket, or before the task knows that it has
            return
        if self.transport.is_closing():
            return
        self._framing_bytes += len(data)
        refusal = self._parse(data)
        if (
            refusal is None
            and self._receiving is not None
            and self._framing_bytes > self._table.config.max_header_bytes
        ):
            refusal = too_large(self._table.config.max_header_bytes)
        if refusal is not None:
            self._table.malformed(refusal.code)
            self._refuse(refusal)
        self._settle()

    def _parse(self, data: bytes) -> SlipstreamError | None:
        """Like uvicorn's, but without uvicorn's response and log line for malformed HTTP."""
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return None
                except httptools.HttpParserUpgrade as offer:
                    data = data[offer.args[0] :]
                    read_on(self, self._offered_framing)
        except httptools.HttpParserError:
            return self._refusal or RequestError("Invalid HTTP request received.")
        return None

    def on_message_begin(self) -> None:
        """Called by httptools at the first byte of a request."""
        self._receiving = Waiting.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called by httptools once the request's head is complete."""
        headers = self.headers
        version, max_bytes = self.parser.get_http_version(), self._table.config.max_header_bytes
        self._refusal = refusal_of(version, self.url, headers, max_bytes)
        if self._refusal is None and len(self.pipeline) >= MAX_PIPELINED:
            self._refusal = RequestError(f"More than {MAX_PIPELINED} requests are waiting on one connection.")
        if self._refusal is not None:
            raise Refused
        super().on_headers_complete()  # raises for an invalid URL while the head is still current
        if self.parser.should_upgrade():
            self._offered_framing = framing_of(headers, keep_alive=self.parser.should_keep_alive())
        self._receiving = Waiting.BODY
        self.headers = []  # trailers would be added to the headers that the request's handler reads
        if self.expect_100_continue:
            # a client that gets an answer instead of 100 may send its body or not, so the connection must close
            self.cycle.keep_alive = False
        if self._table.draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Called by httptools with a chunk of the request's body."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called by httptools once the request is complete, or offers an upgrade before its body."""
        if self.parser.should_upgrade():
            return
        self._receiving = None
        self._framing_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called once the response is written; like uvicorn's, with the table instead of a timer per request."""
        self.server_state.total_requests += 1
        if not self._ended and not self.transport.is_closing():
            self._table.answered(self)
            if self._closes:
                self._discard_rest()
            elif self.flow.write_paused:
                self.flow.pause_reading()  # or unread responses would pile up
            else:
                self._continue()
        self._settle()

    def _continue(self) -> None:
        """Serve the client's next request: it has read enough of the last response."""
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._over:
            self._end()

    def _discard_rest(self) -> None:
        """End the connection after its answer: the rest of the body is read and discarded until the client closes."""
        self._over = True
        self.flow.resume_reading()
        self._end()

    def closes_later(self) -> bool:
        """Whether the answered connection stays open for the rest of its request's body, which is discarded: closing a
        socket that still receives resets it, and a client that sends first loses the answer."""
        self._closes = self._receiving is Waiting.BODY and not self.pipeline
        return self._closes

    def reads_on(self, waiting: Waiting) -> bool:
        """Whether the client has read some of its answer in this wait, and enough in all, to get the same time for the
        rest. A client's kernel opens its window in steps of up to a sixteenth of its buffer, so the last bytes that it
        read may show in the next wait. No more than half a part may: the kernel takes the first bytes by itself."""
        if waiting not in (Waiting.READING, Waiting.CLOSING):
            return False
        before_bytes, self._unread_bytes = self._unread_bytes, self._unread()
        allowed_bytes = self._allowed_bytes
        self._allowed_bytes -= self._part_bytes
        return 0 < self._unread_bytes < before_bytes and self._unread_bytes <= allowed_bytes

    def _unread(self) -> int:
        """Bytes that the client has not read while some wait here, else 0. TLS passes most of them to the transport
        below it at once. The kernel takes more only when megabytes of its own have been read, so those count too."""
        below = self._below
        unread_bytes = self.transport.get_write_buffer_size() + (0 if below is None else below.get_write_buffer_size())
        if unread_bytes:
            sock = self.transport.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:  # none, or -1, in the turn in which the connection is lost
                with contextlib.suppress(OSError):
                    unread_bytes += struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]
        return unread_bytes

    def overdue(self, waiting: Waiting) -> None:
        """End a wait of the client that took too long."""
        if waiting is Waiting.HEAD and self._receiving is Waiting.HEAD:
            limit_s = self._table.config.head_timeout_s
            self._refuse(RequestTimeout(f"The request's head took longer than {limit_s:g} s to arrive."))
        elif waiting is Waiting.BODY:
            limit_s = self._table.config.body_timeout_s
            self._refuse(RequestTimeout(f"The request's body took longer than {limit_s:g} s to arrive."))
        elif waiting is Waiting.IDLE:
            self.transport.close()
            self._settle()
        else:
            self.cut()

    def give_way(self, refusal: SlipstreamError) -> None:
        """End at once, with `refusal` if a response is due and none has begun."""
        if self.transport is None or self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.cut()
            return
        served = self._served
        if served is None or served.response_complete:
            due = self._receiving is Waiting.HEAD
        elif served.response_started:
            self.cut()
            return
        else:
            due = True
        self._table.linger(self)
        self._over = True
        self._abandon()
        self._last_word = refusal if due else None
        self._end()

    def cut(self) -> None:
        """Close the connection at once."""
        assert self._raw is not None
        self._raw.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._begun += 1
        self._served = cycle
        self._connection = connection = ClientConnection(cycle, self.network, self._begun, self, self._table)
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        scope[SCOPE_KEY] = connection
        # a head that expects 100, or that arrives while this gateway drains, sets `keep_alive` only after this call
        closes = not cycle.keep_alive or self._table.draining or self.expect_100_continue
        if closes and self._receiving is not None:
            app = self._closing(cycle, app)
        super()._start_asgi_task(cycle, app)

    def _closing(self, cycle: RequestResponseCycle, app: Any) -> Any:
        """The application, after whose last message uvicorn does not close the connection if the body is incomplete."""

        async def closing(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body") and not cycle.keep_alive:
                    cycle.keep_alive = self.closes_later()
                await send(message)

            await app(scope, receive, sent)

        return closing

    def pause_writing(self) -> None:
        """Called when the client does not read."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """Called when the client has read enough."""
        super().resume_writing()
        if (
            self._served is not None
            and self._served.response_complete
            and not (self._ended or self.transport.is_closing())
        ):
            self._continue()
        self._settle()

    @property
    def _watched(self) -> bool:
        """Whether the response goes through its `ClientConnection`, whose writer cuts a client that stalls
        (`client_stall_timeout_s`) and releases its resources."""
        return self._connection is not None and self._connection.started

    def _settle(self) -> None:
        """Update the table if the connection's wait has changed."""
        served = self._served
        waiting: Waiting | None
        if self._ended or self.transport.is_closing():
            waiting = Waiting.CLOSING
        elif served is None:
            waiting = Waiting.HEAD
        elif not served.response_complete and self.flow.write_paused and not self._watched:
            waiting = Waiting.READING
        elif not served.response_complete:
            # nothing after a request in service is read, so the client cannot be late with it
            waiting = Waiting.BODY if self._receiving is Waiting.BODY and not self.pipeline else None
        elif self._receiving is Waiting.BODY:
            waiting = Waiting.UNREAD
        else:
            waiting = self._receiving or Waiting.IDLE
        if waiting is not self.waiting:
            if waiting is Waiting.READING or waiting is Waiting.CLOSING:
                self._unread_bytes = self._unread()
                self._part_bytes = max(1, int(READ_PART * self._unread_bytes))
                self._allowed_bytes = self._unread_bytes - self._part_bytes // 2
            self._table.wait(self, waiting)

    def _refuse(self, error: SlipstreamError) -> None:
        """Refuse the request that is being received, after the responses before it, and close."""
        served = self._served
        if self._over or self.transport.is_closing():
            return
        self._over = True
        self.flow.resume_reading()  # a paused socket does not report that the client has left
        receiving, self._receiving = self._receiving, None
        if receiving is Waiting.BODY and self.pipeline:
            self.pipeline.popleft()  # the newest waiting request, which need not begin
        elif receiving is Waiting.BODY:
            if self.cycle.response_started:
                receiving = None  # its response has begun
            self._abandon()
            served = None
        if receiving is not None:
            self._last_word = error
        if served is None or served.response_complete:
            self._end()

    def _abandon(self) -> None:
        """Report to the handler that the client has left; later writes are discarded."""
        served, connection = self._served, self._connection
        self.pipeline.clear()
        if served is not None and connection is not None and not served.response_complete:
            served.disconnected = True
            served.message_event.set()
            connection.lost()

    def _end(self) -> None:
        """Send the refusal and keep reading until the client has read it, or its time is over, because closing a socket
        with unread bytes discards sent ones."""
        self._ended = True
        if self._last_word is not None:
            self.transport.write(_answer(self._last_word))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:  # TLS
            self.transport.close()
        self._settle()


def _answer(error: SlipstreamError) -> bytes:
    """A complete response outside of any request."""
    body = body_of(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"x-request-id", mint().encode()),
        *headers_of(error),
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINES[status_of(error)] + lines + b"\r\n" + body
