"""HTTP/1.1 to engines: one keep-alive pool per replica, responses read in whatever pieces they arrive.

Our own, on asyncio and httptools, because this is the path of every generated token: a general client costs 1.2 to 2.6
times as much CPU per event. It knows nothing about dialects; see `engines/drivers/base.py`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from contracts.errors import ConnectionsExhausted, EngineFailed, EngineTimeout
from engines.drivers.base import EngineRequest
from engines.http.keys import KeySource
from engines.http.origin import Origin

BUFFER_BYTES = 1 << 20
"""Unread response bytes at which the engine is made to wait."""
HEADER_BYTES = 1 << 16
FETCH_BYTES = 1 << 22
"""Largest answer to a small request."""
IDLE_S = 60.0
"""A connection unused for longer is not used again."""
MAX_HEADS = 64
MAX_IDLE_CONNECTIONS = 1_024
"""Kept per replica."""
RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class EngineStream:
    """One response as it arrives. `close` is always due; after the clean end it costs nothing."""

    def __init__(self, connection: _Connection, origin: Origin) -> None:
        """Made by `EngineConnections` only."""
        self.status = 0
        """0 until the response's head has come."""
        self.on_change: Callable[[], None] | None = None
        """Called in the socket's callback when `take` has something or the response is over, in place of waking a
        reader: for whoever passes bytes on without waiting. It must not raise."""
        self._connection = connection
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._error: EngineFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False

    @property
    def over(self) -> bool:
        """Nothing more will come; `read` says whether that is as it should be."""
        return self._ended or self._error is not None

    async def responded(self) -> None:
        """Return when the status is known. Raises EngineFailed. Cancelling loses nothing."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._change()

    async def read(self) -> bytes:
        """All bytes that came since the last call, waiting for at least one; b"" at the clean end.

        Raises EngineFailed when the response was cut short or is not HTTP, after everything before the cut was read.
        One caller at a time; cancelling loses nothing.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._change()
        return self.take()

    def take(self) -> bytes:
        """All bytes that came since the last call, perhaps none."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._size = 0
        if self._paused:
            self._paused = False
            self._connection.resume()
        return data

    def close(self) -> None:
        """Stop here: a response that has not ended loses its connection, which tells the engine. Idempotent."""
        if not self._ended and self._error is None:
            self.fail("closed by us")
            self._connection.abort()

    def feed(self, data: bytes) -> None:
        """A piece of the body came; `changed` follows once the whole read is parsed."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > BUFFER_BYTES and not self._paused:
            self._paused = True
            self._connection.pause()

    def end(self) -> None:
        """The body is complete; `changed` follows."""
        self._ended = True
        if self._paused:
            self._paused = False
            self._connection.resume()

    def fail(self, reason: str) -> None:
        """The rest of the response will not come."""
        if self._ended or self._error is not None:
            return
        self._error = EngineFailed(
            f"The engine failed: {reason}.", retry_after_s=RETRY_AFTER_S, detail=self._origin.place
        )
        self.changed()

    def changed(self) -> None:
        """Tell whoever waits."""
        if self.on_change is not None:
            self.on_change()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class _Connection(asyncio.Protocol):
    """One socket; carries one response at a time. Callbacks named on_* belong to httptools."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._stream: EngineStream | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._framed = False
        self._informational = False
        self._header_bytes = 0
        self.got_bytes = False
        self.used = False
        self.idle_since_s = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._stream is None

    def send(self, data: bytes) -> EngineStream:
        """Write one request; its response goes to the stream returned."""
        assert self._transport is not None
        self._stream = stream = EngineStream(self, self._pool.origin)
        self._parser = httptools.HttpResponseParser(self)
        self._framed = self._informational = self.got_bytes = False
        self._header_bytes = 0
        self._transport.write(data)
        return stream

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # a cast, for uvloop's transports are no subclasses of asyncio's
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        stream = self._stream
        if stream is None:
            self.abort()  # nobody asked: whatever this is, it must not become the next request's answer
            return
        self.got_bytes = True
        if not stream.status:
            self._header_bytes += len(data)
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            stream.fail("its answer is not valid HTTP")
            self.abort()
            return
        if not stream.status and self._header_bytes > HEADER_BYTES:
            stream.fail("its response headers are too large")
            self.abort()
            return
        stream.changed()

    def connection_lost(self, error: Exception | None) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            if error is None and stream.status and not self._framed:
                stream.end()  # neither length nor chunks: the body ends with the connection
                stream.changed()
            else:
                stream.fail("it closed the connection before its answer was complete")
        self._pool.forget(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        stream, parser = self._stream, self._parser
        assert parser is not None
        if stream is None:
            return
        status = parser.get_status_code()
        self._informational = status < 200
        if not self._informational and not stream.status:
            stream.status = status

    def on_body(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.feed(data)

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


class _Pool:
    """Idle connections to one origin; the most recently used is taken first."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.heads: dict[tuple[str, str, str], bytes] = {}
        """Request line and constant headers, by method, path and API key."""
        self.connections: set[_Connection] = set()
        self._idle: deque[_Connection] = deque()

    def take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and time.monotonic() - connection.idle_since_s < IDLE_S:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: _Connection) -> None:
        connection.used = True
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE_CONNECTIONS:
            self._idle.popleft().abort()

    def forget(self, connection: _Connection) -> None:
        self.connections.discard(connection)
        if connection.used and connection in self._idle:
            self._idle.remove(connection)

    async def connect(self, connections: EngineConnections, timeout_s: float) -> _Connection:
        place = self.origin.place
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self),
                    self.origin.host,
                    self.origin.port,
                    ssl=connections.context(self.origin),
                )
        except TimeoutError:
            raise EngineFailed(
                f"The engine did not accept a connection within {timeout_s:g} s.",
                retry_after_s=RETRY_AFTER_S,
                detail=place,
            ) from None
        except OSError as error:  # TLS' own errors are among them
            if out_of_descriptors(error):
                logger.error("no connection to %s: too many files are open; raise the limit (ulimit -n)", place)  # noqa: TRY400
                raise ConnectionsExhausted(
                    "Too many connections are open here; try again shortly.", retry_after_s=RETRY_AFTER_S
                ) from None
            raise EngineFailed(
                "The engine cannot be reached.", retry_after_s=RETRY_AFTER_S, detail=f"{place}: {error}"
            ) from error
        self.connections.add(connection)
        return connection


class Opening:
    """A request on its way to an engine, until its response begins.

    Waiting for the response can be cancelled without stopping the request: a client that has left still owes what the
    engine generated for it. `close` is always due.
    """

    def __init__(
        self, connections: EngineConnections, pool: _Pool, data: bytes, connect_timeout_s: float, request_id: str
    ) -> None:
        """Made by `EngineConnections.opening` only."""
        self._connections = connections
        self._pool = pool
        self._data = data
        self._connect_timeout_s = connect_timeout_s
        self._request_id = request_id
        self._connection: _Connection | None = None
        self._kept_alive = False
        self._stream: EngineStream | None = None

    @property
    def sent(self) -> bool:
        """The engine may have the request."""
        return self._stream is not None

    async def response(self, timeout_s: float) -> EngineStream:
        """The response, as soon as its status is known; may be asked again after it was cancelled.

        Raises EngineFailed when the engine cannot be reached or breaks off, EngineTimeout when it is silent for
        timeout_s, ConnectionsExhausted when this process can open no connection.
        """
        if self._stream is None:
            self._connection = self._pool.take()
            self._kept_alive = self._connection is not None
            await self._send()
        assert self._stream is not None
        assert self._connection is not None
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    await self._stream.responded()
                except EngineFailed:
                    # it may have died while idle, before our request reached anyone
                    if not self._kept_alive or self._connection.got_bytes:
                        raise
                    place = self._pool.origin.place
                    logger.info("%s: kept-alive connection to %s had ended, retrying", self._request_id, place)
                    self._connection, self._kept_alive = None, False
                    await self._send()
                    await self._stream.responded()
        except TimeoutError:
            raise silent(self._pool.origin, timeout_s) from None
        return self._stream

    def close(self) -> None:
        """Stop: a response that has not ended loses its connection. Idempotent."""
        if self._stream is not None:
            self._stream.close()

    async def _send(self) -> None:
        if self._connection is None:
            self._connection = await self._pool.connect(self._connections, self._connect_timeout_s)
        self._stream = self._connection.send(self._data)


class EngineConnections:
    """Every connection of this process to engines. Use from one event loop."""

    def __init__(self, keys: KeySource, ssl_context: ssl.SSLContext | None = None) -> None:
        """keys: says what each engine is sent as bearer."""
        self._keys = keys
        self._ssl_context = ssl_context
        self._pools: dict[str, _Pool] = {}

    def opening(
        self,
        url: str,
        request: EngineRequest,
        connect_timeout_s: float = 2.0,
        request_id: str = "",
        pool_name: str = "",
    ) -> Opening:
        """The request, not yet sent. request_id: for the log. pool_name: whose key is sent.

        Raises ConfigError or NoEngine when there is no key for it, see `KeySource`.
        """
        key = self._keys.key_for(url, pool_name)
        pool = self._pools.get(url)
        if pool is None:
            pool = self._pools[url] = _Pool(Origin.parse(url))
        return Opening(self, pool, self._encoded(pool, request, key), connect_timeout_s, request_id)

    async def open(
        self,
        url: str,
        request: EngineRequest,
        connect_timeout_s: float = 2.0,
        request_id: str = "",
        *,
        response_timeout_s: float = 300.0,
        pool_name: str = "",
    ) -> EngineStream:
        """Send the request; return when the status is known.

        Raises EngineFailed when the engine cannot be reached or breaks off, EngineTimeout when it is silent for
        response_timeout_s, ConnectionsExhausted when this process can open no connection. Cancelling closes the
        connection, which tells the engine.
        """
        opening = self.opening(url, request, connect_timeout_s, request_id, pool_name)
        try:
            return await opening.response(response_timeout_s)
        except BaseException:
            opening.close()
            raise

    async def fetch(
        self, url: str, request: EngineRequest, timeout_s: float, max_bytes: int = FETCH_BYTES, *, pool_name: str = ""
    ) -> tuple[int, bytes]:
        """Status and whole body of a small request.

        Raises EngineFailed, also for a body over max_bytes, EngineTimeout when all of it takes over timeout_s, and
        ConnectionsExhausted when this process can open no connection.
        """
        stream: EngineStream | None = None
        try:
            async with asyncio.timeout(timeout_s):
                stream = await self.open(url, request, timeout_s, response_timeout_s=timeout_s, pool_name=pool_name)
                body = bytearray()
                while piece := await stream.read():
                    body += piece
                    if len(body) > max_bytes:
                        place = self._pools[url].origin.place
                        raise EngineFailed(f"The engine answered with more than {max_bytes} bytes.", detail=place)
                return stream.status, bytes(body)
        except TimeoutError:
            raise silent(Origin.parse(url), timeout_s) from None
        finally:
            if stream is not None:
                stream.close()

    async def close(self) -> None:
        """Abort everything and wait until the sockets are gone."""
        lost = [connection.lost for pool in self._pools.values() for connection in pool.connections]
        for pool in self._pools.values():
            for connection in list(pool.connections):
                connection.abort()
        if lost:
            await asyncio.wait(lost)
        self._pools.clear()

    def context(self, origin: Origin) -> ssl.SSLContext | None:
        """For https; None for http."""
        if not origin.secure:
            return None
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context

    def _encoded(self, pool: _Pool, request: EngineRequest, key: str) -> bytes:
        head = pool.heads.get((request.method, request.path, key))
        if head is None:
            origin = pool.origin
            if len(pool.heads) == MAX_HEADS:
                pool.heads.clear()  # requests by id have a path each
            authorization = f"Authorization: Bearer {key}\r\n" if key else ""
            head = pool.heads[request.method, request.path, key] = (
                f"{request.method} {origin.prefix}{request.path} HTTP/1.1\r\nHost: {origin.place}\r\n{authorization}"
            ).encode("ascii")
        if request.method != "POST" and not request.body:
            return head + b"\r\n"
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(request.body)
        return b"".join((head, length, request.body))


def silent(origin: Origin, timeout_s: float) -> EngineTimeout:
    """Nothing came within `timeout_s`."""
    return EngineTimeout(
        f"The engine did not answer within {timeout_s:g} s.", retry_after_s=RETRY_AFTER_S, detail=origin.place
    )


def out_of_descriptors(error: OSError) -> bool:
    """Whether a connection failed because this process, or this machine, can open no more files."""
    if isinstance(error, socket.gaierror):  # looking up a name opens files too, and does not say why it could not
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as reason:
            error = reason
    return error.errno in (errno.EMFILE, errno.ENFILE)
