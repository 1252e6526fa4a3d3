"""Limits the event loop's time for requests other than inference, which has its own limits.

A request's time is charged to its organization if it has a valid key or session, else to its network. Only requests of
an organization or network ahead of its share wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from http import HTTPStatus
from typing import Any

from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.http.loop_shares import LoopShares, Shares, StrangerShares
from gateway.http.networks import forwarded_address, network_of, trusted_networks

REQUEST_S = 0.0003
"""Cost of a request without its handler: its head, its task and its part of the connection's work."""
STREAM_S = 10.0
"""A longer request is a stream of events, whose time predicts nothing about the next request."""
PROBES = frozenset({"/healthz", "/health", "/readyz"})
"""Paths that load balancers poll. Each network has a separate share for them, which other requests do not use."""
MAX_KNOWN, MAX_OF_ORGANIZATION, KNOWN_S = 10_000, 1_000, 300.0
"""Limits of remembered credentials, in total and of one organization, and how long they are remembered. A client can
make any number from one key, because other cookies make another credential."""


class Pace:
    """The pace of one gateway. trusted_proxies: the setting; X-Forwarded-For distinguishes their clients. clock:
    seconds of the loop's CPU time, so that other work on the machine makes no request wait longer."""

    def __init__(
        self,
        shares: LoopShares,
        trusted_proxies: tuple[str, ...] = (),
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._shares = shares
        self._clock = clock
        self._trusted = trusted_networks(trusted_proxies)
        self._known = KnownCredentials()

    async def serve(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        """Serve the request with this application, when it is its turn. A client that left meanwhile is not served."""
        connection: ClientConnection = scope[SCOPE_KEY]
        headers = dict(scope["headers"])
        network = self._network(scope, headers, connection)
        credential = self._known.digest(headers)
        expected = self._known.find(credential)
        try:
            async with ClientWatch(connection):
                if expected:
                    await self._shares.outside.turn(expected)
                else:
                    await self._shares.strangers.turn(network)
        except ClientGone:
            return

        bill = Bill(self._shares, connection, network, expected)
        try:
            await _metered(
                app(scope, receive, self._heard(send, credential) if expected else send), bill.charge, self._clock
            )
        finally:
            bill.close()
            if credential and connection.organization_id:
                self._known.learn(credential, connection.organization_id)

    def _heard(self, send: Any, credential: bytes) -> Any:
        """Forget a refused credential, because a client with a revoked key must not use up the organization's share."""

        async def heard(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.UNAUTHORIZED:
                self._known.forget(credential)
            await send(message)

        return heard

    def _network(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], connection: ClientConnection) -> str:
        network = connection.network
        if not network and self._trusted:
            client = forwarded_address(headers.get(b"x-forwarded-for", b"").decode("latin-1"), self._trusted)
            network = network_of(client)
        return f"{network} probes" if network and scope["path"] in PROBES else network


class Bill:
    """Charges one request's time. The usual time is charged in advance, so that no more requests begin at once than
    the share allows; further time is charged as it passes."""

    def __init__(self, shares: LoopShares, connection: ClientConnection, network: str, expected: str) -> None:
        """expected: the organization of the request's key when it was last checked; empty if it is unknown."""
        self._shares = shares
        self._connection = connection
        self._network = network
        self._expected = expected
        self._taken_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._payer = self._current_payer()
        payer, name = self._payer
        self._advance_s = payer.usual_s(name)
        payer.spend(name, self._advance_s)
        self.charge(REQUEST_S)

    def charge(self, seconds: float) -> None:
        """Charge more time, unless the organization's limits already count the request."""
        if self._connection.counted:
            return
        if (payer := self._current_payer()) != self._payer:
            self._refund()
            self._payer = payer
        self._taken_s += seconds
        in_advance_s = min(seconds, self._advance_s)
        self._advance_s -= in_advance_s
        if seconds > in_advance_s:
            shares, name = self._payer
            shares.spend(name, seconds - in_advance_s)

    def close(self) -> None:
        """Refund the rest of the advance and record the request's time."""
        self._refund()
        shares, name = self._payer
        if self._loop.time() - self._began_s < STREAM_S:
            shares.note(name, self._taken_s)

    def _current_payer(self) -> tuple[Shares | StrangerShares, str]:
        if organization_id := self._connection.organization_id or self._expected:
            return self._shares.outside, organization_id
        return self._shares.strangers, self._network

    def _refund(self) -> None:
        shares, name = self._payer
        shares.spend(name, -self._advance_s)
        self._advance_s = 0.0


class KnownCredentials:
    """The organization of each key and session when it was last checked. It grants no access, and only decides whose
    share the next request waits for before its key is checked again."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._salt = os.urandom(32)
        self._known: dict[bytes, tuple[str, float]] = {}
        """Organization and time by digest, the least recently used first."""
        self._of: dict[str, dict[bytes, None]] = {}
        """Digests by organization, the least recently used first."""

    def digest(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Digest of the request's credentials; empty if it has none."""
        credentials = b"\n".join(headers.get(name, b"") for name in (b"authorization", b"x-api-key", b"cookie"))
        return hashlib.blake2b(credentials, key=self._salt, digest_size=16).digest() if len(credentials) > 2 else b""

    def find(self, digest: bytes) -> str:
        """The organization; empty if it is unknown."""
        organization_id, seen_s = self._known.get(digest, ("", 0.0))
        return organization_id if self._now() < seen_s + KNOWN_S else ""

    def learn(self, digest: bytes, organization_id: str) -> None:
        """Remember a valid credential."""
        self.forget(digest)
        own = self._of.setdefault(organization_id, {})
        self._known[digest], own[digest] = (organization_id, self._now()), None
        if len(own) > MAX_OF_ORGANIZATION:
            self.forget(next(iter(own)))
        elif len(self._known) > MAX_KNOWN:
            self.forget(next(iter(self._known)))

    def forget(self, digest: bytes) -> None:
        if (known := self._known.pop(digest, None)) is not None:
            own = self._of[known[0]]
            del own[digest]
            if not own:
                del self._of[known[0]]


@types.coroutine
def _metered(
    work: Coroutine[Any, Any, None], spend: Callable[[float], None], clock: Callable[[], float]
) -> Generator[Any, Any, None]:
    """Await `work` and charge each of its turns of the loop as it ends."""
    resume: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        began_s = clock()
        try:
            awaited = resume(value)
        except StopIteration:
            return
        finally:
            value = None
            spend(clock() - began_s)
        try:
            resume, value = work.send, (yield awaited)
        except BaseException as error:
            resume, value = work.throw, error
