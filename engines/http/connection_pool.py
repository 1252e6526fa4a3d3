"""Keep-alive connections to one engine, each of which carries one response at a time."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from typing import cast

import httptools

from contracts.errors import ConnectionsExhausted, EngineFailed
from engines.http.engine_stream import BUFFER_BYTES, RETRY_AFTER_S, CutStream, EngineStream
from engines.http.local_shortage import local_shortage
from engines.http.origin import Origin
from engines.http.retry_after import retry_after_s

HEADER_BYTES = 1 << 16
"""Most bytes that an engine may send outside a body at one time: headers, a chunk's size with its extensions, or
trailers."""
IDLE_S = 60.0
"""Idle time after which a connection is not reused."""
MAX_IDLE_CONNECTIONS = 1_024
"""Most idle connections that are kept per replica."""

logger = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """One socket; carries one response at a time. Callbacks named on_* belong to httptools."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._stream: EngineStream | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._framed = False
        self._informational = False
        self._header_bytes = 0
        """Bytes read since the response began or, once its headers are complete, since the last part of its body."""
        self.got_bytes = False
        self.used = False
        self.idle_since_s = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._stream is None

    def send(self, data: bytes, opening: str = "") -> EngineStream:
        """Write one request; returns the stream that receives its response. opening: see `EngineRequest.opening`."""
        assert self._transport is not None
        transport, origin, loop = self._transport, self._pool.origin, self.lost.get_loop()
        stream = CutStream(transport, origin, loop, opening) if opening else EngineStream(transport, origin, loop)
        self._stream = stream
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        self._framed = self._informational = self.got_bytes = False
        self._header_bytes = 0
        self._transport.write(data)
        return stream

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # a cast, because uvloop's transports are not subclasses of asyncio's
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        stream = self._stream
        if stream is None:
            self.abort()  # no request is open: these bytes must not become the next request's response
            return
        self.got_bytes = True
        self._header_bytes += len(data)
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            stream.fail("its response is not valid HTTP")
            self.abort()
            return
        # httptools joins a header's value again with each read, so an endless value would take ever more time
        if self._header_bytes > HEADER_BYTES and not stream.over:
            stream.fail(f"its {'trailers or chunk headers' if stream.status else 'response headers'} are too large")
            self.abort()
            return
        on_change = stream.on_change
        if on_change is not None:
            on_change()
        else:
            stream.changed()

    def connection_lost(self, error: Exception | None) -> None:
        stream, self._stream = self._stream, None
        self._parser = None  # it refers to this connection; only the garbage collector would free both
        if stream is not None:
            if error is None and stream.status and not self._framed:
                stream.end()  # without a length or chunks, the body ends with the connection
                stream.changed()
            else:
                stream.fail("it closed the connection before its response was complete")
        self._pool.forget(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif lowered == b"retry-after" and self._stream is not None:
            self._stream.retry_after_s = retry_after_s(value, time.time())

    def on_headers_complete(self) -> None:
        stream, parser = self._stream, self._parser
        assert parser is not None
        if stream is None:
            return
        status = parser.get_status_code()
        self._informational = status < 200
        if not self._informational and not stream.status:
            stream.status = status
            self._header_bytes = 0

    def on_body(self, data: bytes) -> None:
        self._header_bytes = 0
        stream = self._stream
        if stream is not None:  # no call, because this runs for each token
            stream.pieces.append(data)
            stream.unread_bytes += len(data)
            if stream.unread_bytes > BUFFER_BYTES:
                stream.pause()

    def on_message_complete(self) -> None:
        stream, parser = self._stream, self._parser
        assert parser is not None
        if self._informational or stream is None:
            self._informational = self._framed = False
            return
        keep = parser.should_keep_alive()
        self._stream = None
        stream.end()
        if keep:
            self._pool.give_back(self)
        else:
            self.abort()

    def on_message_begin(self) -> None:
        if self._stream is None:
            self.abort()  # bytes beyond the response


class ConnectionPool:
    """Connections to one origin; `take` returns the idle one that was used most recently."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None = None) -> None:
        """tls: context for an https origin."""
        self.origin = origin
        self._tls = tls
        self.heads: dict[tuple[str, str, str], bytes] = {}
        """Request line and constant headers, by method, path and API key."""
        self.connections: set[Connection] = set()
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and time.monotonic() - connection.idle_since_s < IDLE_S:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        connection.used = True
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE_CONNECTIONS:
            self._idle.popleft().abort()

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if connection.used and connection in self._idle:
            self._idle.remove(connection)

    async def connect(self, timeout_s: float) -> Connection:
        place = self.origin.place
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self), self.origin.host, self.origin.port, ssl=self._tls
                )
        except TimeoutError:
            raise EngineFailed(
                f"The engine did not accept a connection within {timeout_s:g} s.",
                retry_after_s=RETRY_AFTER_S,
                detail=place,
            ) from None
        except OSError as error:  # includes TLS errors
            if (shortage := local_shortage(error, self.origin.host)) is not None:
                raise exhausted(place, shortage) from None
            raise EngineFailed(
                "The engine cannot be reached.", retry_after_s=RETRY_AFTER_S, detail=f"{place}: {error}"
            ) from error
        self.connections.add(connection)
        return connection


def exhausted(place: str, shortage: str) -> ConnectionsExhausted:
    """The error for a connection to `place` that lacked a resource of this machine. Nothing was sent."""
    logger.error("no connection to %s: %s (open files are limited by ulimit -n)", place, shortage)
    return ConnectionsExhausted(
        "No further connection can be opened here at present; try again shortly.",
        retry_after_s=RETRY_AFTER_S,
        detail=f"{place}: {shortage}",
    )
