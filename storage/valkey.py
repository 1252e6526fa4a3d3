"""A Valkey (or Redis) connection for one hot call: multiplexed, callback-based, at most two writes per loop turn.

It keeps one connection, reconnects by itself, and fails at once while it is disconnected: the caller decides how to
continue. Commands run in the order in which they were sent, also across the callers of one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.errors import ConfigError
from storage.valkey_command import pack

Done = Callable[[object], None]
"""Called once, with the reply or with an exception: ReplyError, CallTimeout or ConnectionLost."""

MAX_IN_FLIGHT = 20_000
STALL_TIMEOUTS = 10
"""Call timeouts without a reply after which a connection counts as dead and is closed."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.02, 1.0
_NOTHING = object()
_WHO = pack(("INFO", "server"))
_RESP3, _PING = pack(("HELLO", 3)), pack(("PING",))


def ignored(_: object) -> None:
    """Callback for replies and changes that no caller waits for."""


def forgotten(reply: object) -> bool:
    """Whether a reply, or an error raised for it, reports an unknown script. Every connection begins with the scripts,
    so they were flushed, or another server has the same address."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


class ConnectionLost(Exception):
    """The connection is missing, or ended before the reply: the command may or may not have run."""


class CallTimeout(Exception):
    """No reply in time: the command may or may not have run, or may run later."""


class Valkey:
    """url: `unix:///path/to/socket`, `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS.

    scripts: packed commands that load scripts, sent first on every connection; if one fails, the connection fails.
    identify: read the server's run id, for `incarnation`. channel: subscribe to it on the same connection. on_message:
    called with each message.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        scripts: tuple[bytes, ...] = (),
        *,
        identify: bool = False,
        channel: str = "",
        on_message: Callable[[bytes], None] = ignored,
    ) -> None:
        self._address = Address(url)
        self._timeout_s = timeout_s
        self._scripts = scripts
        self._identify = identify
        self._channel = channel
        self._on_message = on_message
        self._link: _Link | None = None
        self._task = BackgroundTask("valkey", self._keep_connected)
        self._ready = asyncio.Event()
        self.incarnation = ""
        """Run id of the connected, or last connected, server: a restart changes it."""
        self.on_change: Callable[[bool], None] = ignored
        """Called with True when a connection has become usable, with False when it is lost."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None and not self._link.lost.is_set()

    async def start(self) -> None:
        """Connect in the background, and wait for the first connection, at most for one call timeout."""
        self._task.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._ready.wait()

    async def wait_ready(self) -> None:
        """Wait for a connection."""
        await self._ready.wait()
        while not self.connected:  # lost in this turn of the loop, so `_ready` is not cleared yet
            await asyncio.sleep(0)
            await self._ready.wait()

    async def stop(self) -> None:
        """Close the connection; commands in flight end with ConnectionLost."""
        link = self._link
        await self._task.stop()
        if link is not None:
            await link.lost.wait()

    def send(self, command: bytes, done: Done = ignored) -> None:
        """Write a packed command in this turn of the loop. Raises ConnectionLost at once while disconnected, or
        with `MAX_IN_FLIGHT` commands unanswered."""
        if self._link is None:
            raise ConnectionLost
        self._link.send(command, done)

    async def call(self, command: bytes) -> Any:
        """Send and wait for the reply. Raises ReplyError, CallTimeout or ConnectionLost. Cancelling abandons only the
        reply: the command still runs. If the server has forgotten the scripts, load them and send again."""
        if self._link is None:
            raise ConnectionLost
        try:
            return await self._link.call(command)
        except hiredis.ReplyError as error:
            if not forgotten(error):
                raise
        self.load_scripts()
        return await self._link.call(command)

    def load_scripts(self) -> None:
        """Load the scripts again. Raises ConnectionLost."""
        for load in self._scripts:
            self.send(load)

    async def _keep_connected(self) -> None:
        backoff = Backoff(FIRST_BACKOFF_S, LAST_BACKOFF_S)
        while True:
            link = _SubscribedLink(self._timeout_s, self._on_message) if self._channel else _Link(self._timeout_s)
            try:
                async with asyncio.timeout(max(1.0, self._timeout_s)):
                    await self._address.connect(lambda link=link: link)  # type: ignore[misc]
                    for command in self._address.greeting + self._scripts:
                        await link.call(command)
                    if isinstance(link, _SubscribedLink):
                        await link.subscribe(self._channel)
                    if self._identify:
                        self.incarnation = _run_id(await link.call(_WHO))
                self._link = link
                self._ready.set()
                self.on_change(True)
                backoff.reset()
                await link.lost.wait()
            except (OSError, TimeoutError, ConnectionLost, CallTimeout, hiredis.HiredisError) as error:
                logging.getLogger(__name__).debug("no connection to Valkey: %r", error)
            finally:
                link.close()
                if self._link is not None:
                    self._link = None
                    self._ready.clear()
                    self.on_change(False)
            await asyncio.sleep(backoff.next_s())


class _Link(asyncio.Protocol):
    """One connection from its start to its end."""

    def __init__(self, timeout_s: float) -> None:
        self.lost = asyncio.Event()
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._waiting: deque[tuple[float, Done]] = deque()
        """Deadline and callback of each command without a reply, oldest first."""
        self._given_up = 0
        """Number of calls at the front of `_waiting` that got CallTimeout; their later replies are dropped."""
        self._unsent: list[bytes] = []
        self._turn_taken = False
        """Whether this turn of the loop has written a command; its later commands are written together at its end."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, command: bytes, done: Done) -> None:
        if len(self._waiting) >= MAX_IN_FLIGHT or self._transport is None:
            raise ConnectionLost
        self._unsent.append(command)
        if not self._turn_taken:
            # a turn's first command is written at once: the turn may be long, and a client waits for its first token
            self._turn_taken = True
            self._write()
            self._loop.call_soon(self._end_turn)
        self._waiting.append((self._loop.time() + self._timeout_s, done))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._check_deadlines)

    async def call(self, command: bytes) -> object:
        future: asyncio.Future[object] = self._loop.create_future()

        def done(reply: object) -> None:
            if not future.done():
                future.set_result(reply)

        self.send(command, done)
        reply = await future
        if isinstance(reply, Exception):
            raise reply
        return reply

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._next_reply()) is not _NOTHING:
            if not self._waiting:
                self.close()  # more replies than commands: replies can no longer be matched to commands
                return
            _, done = self._waiting.popleft()
            if self._given_up:
                self._given_up -= 1
            else:
                done(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost.set()
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(self._given_up):
            self._waiting.popleft()
        self._given_up = 0
        while self._waiting:
            self._waiting.popleft()[1](ConnectionLost())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _next_reply(self) -> object:
        try:
            return self._reader.gets()
        except hiredis.ProtocolError:
            self.close()
            return _NOTHING

    def _end_turn(self) -> None:
        self._turn_taken = False
        if self._unsent:
            self._write()

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _check_deadlines(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        if self._given_up and now_s - self._waiting[0][0] > STALL_TIMEOUTS * self._timeout_s:
            self.close()
            return
        # one walk, because an index into the middle of a deque is a walk of its own
        late = list(takewhile(lambda waiting: waiting[0] <= now_s, islice(self._waiting, self._given_up, None)))
        self._given_up += len(late)
        for _, done in late:
            done(CallTimeout())
        if self._waiting:
            next_s = self._timeout_s
            if self._given_up < len(self._waiting):
                next_s = self._waiting[self._given_up][0] - now_s
            self._timer = self._loop.call_later(next_s, self._check_deadlines)


class _SubscribedLink(_Link):
    """Uses RESP3, in which messages arrive between replies and differ from them."""

    def __init__(self, timeout_s: float, on_message: Callable[[bytes], None]) -> None:
        super().__init__(timeout_s)
        self._on_message = on_message

    async def subscribe(self, channel: str) -> None:
        """Subscribe, and return when messages are received."""
        await self.call(_RESP3)
        self._unsent.append(pack(("SUBSCRIBE", channel)))  # a push answers it, and no reply
        await self.call(_PING)

    def _next_reply(self) -> object:
        while isinstance(reply := super()._next_reply(), hiredis.PushNotification):
            match list(reply):
                case [b"message", _, bytes(data)]:
                    self._on_message(data)
        return reply


class Address:
    """The address in a URL, and the commands that must be sent first. Raises ConfigError for an invalid URL."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a bracket or, in place of a port, the beginning of a password
            parts, port = urlsplit(""), None
        if parts.scheme not in ("unix", "redis", "rediss") or (parts.scheme == "unix" and not parts.path):
            raise ConfigError(
                f"local.valkey_url: {_without_password(url)!r} is not an address; write unix:///path/to/valkey.sock or "
                "redis://host:6379/0; in a password, write / as %2F, and so on",
                param="local.valkey_url",
            )
        self._path = unquote(parts.path) if parts.scheme == "unix" else None
        self._host = parts.hostname or "127.0.0.1"
        self._port = port or 6379
        self._tls = ssl.create_default_context() if parts.scheme == "rediss" else None
        database = parse_qs(parts.query).get("db", [""])[0] if self._path else parts.path.strip("/")
        greeting = []
        if parts.password:
            user = [unquote(parts.username)] if parts.username else []
            greeting.append(pack(("AUTH", *user, unquote(parts.password))))
        if database not in ("", "0"):
            greeting.append(pack(("SELECT", database)))
        self.greeting: tuple[bytes, ...] = tuple(greeting)

    async def connect(self, protocol: Callable[[], _Link]) -> None:
        loop = asyncio.get_running_loop()
        if self._path is not None:
            await loop.create_unix_connection(protocol, self._path)
        else:
            await loop.create_connection(protocol, self._host, self._port, ssl=self._tls)


def _run_id(information: object) -> str:
    lines = information.decode().splitlines() if isinstance(information, bytes) else []
    return next((line.partition(":")[2] for line in lines if line.startswith("run_id:")), "unknown")


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.split('//')[0]}//…@{tail}" if at else url
