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
from typing import Any, Protocol

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


class Payer(Protocol):
    """Shares of the loop, by name."""

    def spend(self, name: str, seconds: float) -> None:
        """It has taken so much, or gives so much back."""
        ...

    def usual_s(self, name: str) -> float:
        """What one of its requests takes."""
        ...

    def note(self, name: str, seconds: float) -> None:
        """One took so much."""
        ...


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

        bill = Bill(self._shares, connection, network, expected)
        try:
            await _metered(app(scope, receive, send), bill.charge, self._clock)
        finally:
            bill.close()
            if credential and connection.organization_id:
                self._known.learn(credential, connection.organization_id)

    def _network(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], connection: ClientConnection) -> str:
        network = connection.network
        if not network and self._trusted:
            told = told_address(headers.get(b"x-forwarded-for", b"").decode("latin-1"), self._trusted)
            network = network_of(told)
        return f"{network} probes" if network and scope["path"] in PROBES else network


class Bill:
    """What one request takes of the loop. What it takes as a rule is paid in advance, so that no more begin at once
    than their share allows; the rest is paid as it is taken."""

    def __init__(self, shares: LoopShares, connection: ClientConnection, network: str, expected: str) -> None:
        """expected: the organization that the request's key was of when it was last looked at; empty: none."""
        self._shares = shares
        self._connection = connection
        self._network = network
        self._expected = expected
        self._taken_s = 0.0
        self._payer = self._now_pays()
        payer, name = self._payer
        self._advance_s = payer.usual_s(name)
        payer.spend(name, self._advance_s)
        self.charge(REQUEST_S)

    def charge(self, seconds: float) -> None:
        """It has taken so much more, which is no concern of ours once the organization's limits count it."""
        if self._connection.counted:
            return
        if (payer := self._now_pays()) != self._payer:
            self._give_back()
            self._payer = payer
        self._taken_s += seconds
        in_advance_s = min(seconds, self._advance_s)
        self._advance_s -= in_advance_s
        if seconds > in_advance_s:
            shares, name = self._payer
            shares.spend(name, seconds - in_advance_s)

    def close(self) -> None:
        """It is answered."""
        self._give_back()
        shares, name = self._payer
        shares.note(name, self._taken_s)

    def _now_pays(self) -> tuple[Payer, str]:
        if organization_id := self._connection.organization_id or self._expected:
            return self._shares.outside, organization_id
        return self._shares.strangers, self._network

    def _give_back(self) -> None:
        shares, name = self._payer
        shares.spend(name, -self._advance_s)
        self._advance_s = 0.0


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
