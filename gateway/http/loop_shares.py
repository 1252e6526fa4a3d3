"""Limits the event loop's time for work that no other limit counts.

Limits count reservations. But a request's body is read, decoded or refused before its reservation, and requests other
than inference have none. All this work delays every stream of the process, so its time is charged to the organization,
or to the network of a client without a key. Only requests of an organization or network ahead of its share wait
(`rate_buckets`, in seconds of the loop).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator

from gateway.limits.rate_buckets import RateBuckets

SHARE = 0.05
"""Share of the loop's time for one organization's large bodies, and for requests refused for their form or scope."""
BURST_S = 0.02
"""Loop time that it may take at once."""
OUTSIDE_SHARE, OUTSIDE_BURST_S = 0.25, 0.5
"""The same for one organization's requests outside inference. A page of the console with all its requests takes a tenth
of the burst."""
UNSERVED_SHARE, UNSERVED_BURST_S = 0.25, 0.5
"""The same for one organization's requests that limits or a full pool refuse: 250 a second, and 500 at once."""
NETWORK_SHARE, NETWORK_BURST_S = 0.05, 0.1
"""The same for one network of clients without a key."""
STRANGERS_SHARE, STRANGERS_BURST_S = 0.2, 0.4
"""The same for all such networks together, which take turns beyond it."""
LARGE_BYTES = 16_384
"""Smallest body that is charged; a smaller one takes less than half a millisecond."""
REFUSAL_S = 0.001
"""Cost of a refused request with its connection, but without its body."""
USUAL_S, USUAL_WEIGHT = 0.002, 0.3
"""Assumed time of a request outside inference until one of its name is measured, and the newest's weight."""
NAMES_KEPT = 10_000


class Shares:
    """A share for each name. now: monotonic seconds."""

    def __init__(self, share: float, burst_s: float, now: Callable[[], float]) -> None:
        self._buckets = RateBuckets(share, burst_s, now)
        self._usual_s: dict[str, float] = {}
        self._gates: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._buckets)

    async def turn(self, name: str) -> None:
        """Return when the name may take the loop again; waiting callers return one after another."""
        if self.free(name):
            return
        async with self.first(name):
            pass

    @contextlib.asynccontextmanager
    async def first(self, name: str) -> AsyncIterator[None]:
        """Enter as the name's first waiting caller, when it is its turn. The next one waits until the block's end."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = asyncio.Lock()
        async with gate:
            while (wait_s := self._buckets.wait_s(name, 0.0)) > 0:  # noqa: ASYNC110  time, which no event announces
                await asyncio.sleep(wait_s)
            yield

    def free(self, name: str) -> bool:
        """Whether `turn` would return at once."""
        return not self._buckets.wait_s(name, 0.0) and name not in self._gates

    def spend(self, name: str, seconds: float) -> None:
        """Charge loop time to the name; a negative time is a refund."""
        self._buckets.take(name, seconds)

    def usual_s(self, name: str) -> float:
        """The mean time of the name's recorded requests."""
        return self._usual_s.get(name, USUAL_S)

    def note(self, name: str, seconds: float) -> None:
        """Add one request's time to the name's mean."""
        if name not in self._usual_s and len(self._usual_s) >= NAMES_KEPT:
            del self._usual_s[next(iter(self._usual_s))]  # the oldest
        self._usual_s[name] = (1 - USUAL_WEIGHT) * self.usual_s(name) + USUAL_WEIGHT * seconds

    @contextlib.contextmanager
    def charged(self, name: str) -> Iterator[None]:
        """Charge the time of the block to the name."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter() - began_s)


class LoopShares(Shares):
    """The shares of one process: of organizations in inference, by id, and in its fields of all other requests."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(SHARE, BURST_S, now)
        self.outside = Shares(OUTSIDE_SHARE, OUTSIDE_BURST_S, now)
        """Shares of organizations outside inference, by id."""
        self.unserved = Shares(UNSERVED_SHARE, UNSERVED_BURST_S, now)
        """Shares of organizations for well-formed requests that are refused, by id."""
        self.strangers = StrangerShares(now)

    async def refused(self, network: str) -> None:
        """Return when the refusal of a client without a key may be sent, at the pace of its network, whose refusals
        could take all of the loop's time. network: empty if it is unknown, which never waits."""
        await self.strangers.turn(network)
        # charged after the wait, because a refusal that is not sent to a client that left must delay no others
        self.strangers.spend(network, REFUSAL_S)


class StrangerShares:
    """A share for each network of clients without a key, and one for all together. An empty network belongs to a proxy
    that does not forward its client's address, and never waits."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._each = Shares(NETWORK_SHARE, NETWORK_BURST_S, now)
        self._all = Shares(STRANGERS_SHARE, STRANGERS_BURST_S, now)

    async def turn(self, network: str) -> None:
        """Return when the network may take the loop. One caller of each network waits for the common share, so that
        networks take turns."""
        if not network or (self._each.free(network) and self._all.free("")):
            return
        async with self._each.first(network), self._all.first(""):
            pass

    def spend(self, network: str, seconds: float) -> None:
        """Charge loop time to the network; a negative time is a refund."""
        if network:
            self._each.spend(network, seconds)
            self._all.spend("", seconds)

    def usual_s(self, network: str) -> float:
        """The mean time of the network's requests."""
        return self._each.usual_s(network)

    def note(self, network: str, seconds: float) -> None:
        """Add one request's time to the network's mean."""
        self._each.note(network, seconds)
