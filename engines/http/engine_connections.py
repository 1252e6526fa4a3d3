"""An HTTP/1.1 client for engines, with one keep-alive pool per replica, which reads responses in chunks as they arrive.

It is implemented here, on asyncio and httptools, because every generated token takes this path: a general client costs
1.2 to 2.6 times as much CPU per event. It knows nothing about dialects; see `engines/drivers/base.py`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from http import HTTPStatus

from contracts.errors import EngineFailed
from engines.drivers.base import EngineRequest
from engines.http.connection_pool import Connection, ConnectionPool, exhausted
from engines.http.engine_stream import EngineStream, silent
from engines.http.keys import KeySource
from engines.http.local_shortage import shortage_now
from engines.http.origin import Origin

FETCH_BYTES = 1 << 22
"""Largest response to a small request."""
MAX_HEADS = 64
SENDER_HEADER = "x-slipstream-sender"
"""Names the deployment that sends a request. A gateway refuses its own deployment's, whose engine it would be."""

logger = logging.getLogger(__name__)


class Opening:
    """A request on its way to an engine, until its response begins.

    Waiting for the response can be cancelled without stopping the request, because a client that has left still pays
    for the tokens that the engine generated. The caller must always call `close`.
    """

    def __init__(
        self, pool: ConnectionPool, data: bytes, connect_timeout_s: float, request_id: str, opening: str
    ) -> None:
        """Only `EngineConnections.opening` calls this. opening: see `EngineRequest.opening`."""
        self._pool = pool
        self._cut_opening = opening
        self._data = data
        self._connect_timeout_s = connect_timeout_s
        self._request_id = request_id
        self._connection: Connection | None = None
        self._kept_alive = False
        self._stream: EngineStream | None = None

    @property
    def sent(self) -> bool:
        """Whether the engine may have the request."""
        return self._stream is not None

    @property
    def in_flight(self) -> bool:
        """Whether the engine may still answer: False if its connection has ended and no other was opened."""
        return self._stream is not None and self._connection is not None

    @property
    def refused(self) -> bool:
        """Whether the engine has returned an error instead of a stream."""
        return self._stream is not None and self._stream.status not in (0, HTTPStatus.OK)

    def unread(self) -> bytes:
        """The bytes of a good response that have arrived and were not read."""
        return self._stream.take() if self._stream is not None and self._stream.status == HTTPStatus.OK else b""

    async def response(self, timeout_s: float, *, send_again: bool = True) -> EngineStream:
        """The response, as soon as its status is known. A cancelled call may be repeated, and sends the request if none
        is in flight. send_again: whether a request whose kept-alive connection ended before its response is sent on a
        new connection.

        Raises EngineFailed if the engine cannot be reached or breaks off, EngineTimeout if it is silent for timeout_s,
        ConnectionsExhausted if this process can open no connection.
        """
        if not self.in_flight:
            if self._stream is None:  # otherwise a retry was cancelled while it connected
                self._connection = self._pool.take()
                self._kept_alive = self._connection is not None
            await self._send()
        assert self._stream is not None
        assert self._connection is not None
        try:
            await self._stream.responded(timeout_s)
        except EngineFailed:
            # the connection may have died while idle, before our request reached the engine
            if not send_again or not self._kept_alive or self._connection.got_bytes:
                raise
            place = self._pool.origin.place
            logger.info("request %s: kept-alive connection to %s had ended, retrying", self._request_id, place)
            self._connection, self._kept_alive = None, False
            await self._send()
            await self._stream.responded(timeout_s)
        return self._stream

    def close(self) -> None:
        """Stop the request: a response that has not ended loses its connection. Idempotent."""
        if self._stream is not None:
            self._stream.close()

    async def _send(self) -> None:
        if self._connection is None:
            self._connection = await self._pool.connect(self._connect_timeout_s)
        self._stream = self._connection.send(self._data, self._cut_opening)


class EngineConnections:
    """All connections of this process to engines, for use from one event loop."""

    def __init__(self, keys: KeySource, ssl_context: ssl.SSLContext | None = None, sender: str = "") -> None:
        """keys: the bearer token of each engine. sender: the value of `SENDER_HEADER`; empty to omit it."""
        self._keys = keys
        self._sender = f"{SENDER_HEADER}: {sender}\r\n" if sender else ""
        self._ssl_context = ssl_context
        self._pools: dict[str, ConnectionPool] = {}

    def opening(
        self,
        url: str,
        request: EngineRequest,
        connect_timeout_s: float = 2.0,
        request_id: str = "",
        pool_name: str = "",
        headers: bytes = b"",
    ) -> Opening:
        """The request, not yet sent. request_id: for the log. pool_name: the pool whose key is sent. headers: further
        header lines, each with its line end.

        Raises ConfigError or NoEngine if it has no key for the engine (see `KeySource`), and ConnectionsExhausted if
        this process cannot read its trusted certificate authorities.
        """
        key = self._keys.key_for(url, pool_name)
        pool = self._pools.get(url)
        if pool is None:
            pool = self._pools[url] = self._pool_of(Origin.parse(url))
        data = self._encoded(pool, request, key, headers)
        return Opening(pool, data, connect_timeout_s, request_id, request.opening)

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
        """Send the request and return the response once its status is known.

        Raises EngineFailed if the engine cannot be reached or breaks off, EngineTimeout if it is silent for
        response_timeout_s, ConnectionsExhausted if this process can open no connection. Cancelling closes the
        connection, which stops the engine.
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
        """Status and whole body of the response to a small request.

        Raises EngineFailed, also for a body over max_bytes, EngineTimeout if the whole exchange takes over timeout_s,
        and ConnectionsExhausted if this process can open no connection.
        """
        stream: EngineStream | None = None
        try:
            async with asyncio.timeout(timeout_s):
                stream = await self.open(url, request, timeout_s, response_timeout_s=timeout_s, pool_name=pool_name)
                body = bytearray()
                while chunk := await stream.read():
                    body += chunk
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
        """Abort all connections and wait until their sockets are closed."""
        lost = [connection.lost for pool in self._pools.values() for connection in pool.connections]
        for pool in self._pools.values():
            for connection in list(pool.connections):
                connection.abort()
        if lost:
            await asyncio.wait(lost)
        self._pools.clear()

    def _pool_of(self, origin: Origin) -> ConnectionPool:
        if origin.secure and self._ssl_context is None:
            context = ssl.create_default_context()
            if (shortage := shortage_now()) is not None:  # then the authorities' files were not read
                raise exhausted(origin.place, shortage)
            self._ssl_context = context
        return ConnectionPool(origin, self._ssl_context if origin.secure else None)

    def _encoded(self, pool: ConnectionPool, request: EngineRequest, key: str, headers: bytes) -> bytes:
        head = pool.heads.get((request.method, request.path, key))
        if head is None:
            origin = pool.origin
            if len(pool.heads) == MAX_HEADS:
                pool.heads.clear()  # each request by id has its own path
            authorization = f"Authorization: Bearer {key}\r\n" if key else ""
            head = pool.heads[request.method, request.path, key] = (
                f"{request.method} {origin.prefix}{request.path} HTTP/1.1\r\nHost: {origin.place}\r\n"
                f"{authorization}{self._sender}"
            ).encode("ascii")
        if request.method != "POST" and not request.body:
            return head + headers + b"\r\n"
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(request.body)
        return b"".join((head, headers, length, request.body))
