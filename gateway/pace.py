"""One pace in front of everything that is not inference, whose own limits count instead.

What a request takes of the event loop is charged to its organization, if it comes with a good key or session, else to
the network it comes from. Who is ahead of its share waits; nobody else does.
"""

from __future__ import annotations

import hashlib
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.http.networks import network_of, told_address, trusted_networks
from gateway.serving.loop_shares import LoopShares

REQUEST_S = 0.0003
"""What a request costs around what answers it: its head, its task, its share of the connection."""
PROBES = frozenset({"/healthz", "/health", "/readyz"})
"""What balancers ask. Each network has a share for them alone: nothing else that comes from a balancer's address holds
them up."""
MOST_KNOWN, KNOWN_S = 10_000, 300.0
"""Keys and sessions that are remembered, and how long."""


class Pace:
    """One per gateway. trusted_proxies: the setting; their clients are told apart by X-Forwarded-For. clock: seconds,
    by which the loop's time is measured."""

    def __init__(
        self,
        shares: LoopShares,
        trusted_proxies: tuple[str, ...] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._shares = shares
        self._clock = clock
        self._trusted = trusted_networks(trusted_proxies)
        self._known = KnownCredentials()

    async def serve(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        """Serve the request by this application, in its turn. Who has left meanwhile is not served."""
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

        def spend(seconds: float) -> None:
            if connection.counted:
                return
            if organization_id := connection.organization_id or expected:
                self._shares.outside.spend(organization_id, seconds)
            else:
                self._shares.strangers.spend(network, seconds)

        spend(REQUEST_S)
        try:
            await _metered(app(scope, receive, send), spend, self._clock)
        finally:
            if credential and connection.organization_id:
                self._known.learn(credential, connection.organization_id)

    def _network(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], connection: ClientConnection) -> str:
        network = connection.network
        if not network and self._trusted:
            told = told_address(headers.get(b"x-forwarded-for", b"").decode("latin-1"), self._trusted)
            network = network_of(told)
        return f"{network} probes" if network and scope["path"] in PROBES else network


class KnownCredentials:
    """Which organization a key or a session was of when it was last looked at. It opens nothing: it says in whose turn
    the next request waits before it is looked at again."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._salt = os.urandom(32)
        self._known: dict[bytes, tuple[str, float]] = {}
        """Organization and time by digest, the least recently seen first."""

    def digest(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Of what the request carries of that kind; empty for nothing."""
        carried = b"\n".join(headers.get(name, b"") for name in (b"authorization", b"x-api-key", b"cookie"))
        return hashlib.blake2b(carried, key=self._salt, digest_size=16).digest() if len(carried) > 2 else b""

    def find(self, digest: bytes) -> str:
        """Empty: none that is known."""
        organization_id, seen_s = self._known.get(digest, ("", 0.0))
        return organization_id if self._now() < seen_s + KNOWN_S else ""

    def learn(self, digest: bytes, organization_id: str) -> None:
        """It is good."""
        self._known.pop(digest, None)
        self._known[digest] = organization_id, self._now()
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]


@types.coroutine
def _metered(
    work: Coroutine[Any, Any, None], spend: Callable[[float], None], clock: Callable[[], float]
) -> Generator[Any, Any, None]:
    """Await it, each of its turns of the loop charged as it ends."""
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
