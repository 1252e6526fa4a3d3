"""How much of the event loop one organization may take before any of its limits counts: a share, then it waits.

Limits count what was reserved. Reading and decoding a body and refusing it come before that, as does everything that is
no inference, and all of it keeps every stream of the process waiting meanwhile. So the time is charged to the
organization, or to the network of a stranger, and who is ahead of its share waits its turn (a generic cell rate
algorithm, in seconds of the loop). Nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator

SHARE = 0.05
"""Of the loop's time, for one organization's large bodies and refused requests."""
BURST_S = 0.02
"""So much of the loop it may take at once."""
OUTSIDE_SHARE, OUTSIDE_BURST_S = 0.25, 0.5
"""The same for what one organization asks outside inference. A page of the console with all that it loads takes a tenth
of the burst."""
NETWORK_SHARE, NETWORK_BURST_S = 0.05, 0.1
"""The same for one network of strangers."""
STRANGERS_SHARE, STRANGERS_BURST_S = 0.2, 0.4
"""The same for all of them together, whose networks take turns beyond it."""
LARGE_BYTES = 16_384
"""A smaller body takes less than half a millisecond and is not charged."""
REFUSAL_S = 0.001
"""What a refused request costs around its body, its connection included."""
USUAL_S, USUAL_WEIGHT = 0.002, 0.3
"""What a request outside inference takes until more is known of who asks, and how much the newest one counts."""
NAMES_KEPT = 10_000


class Shares:
    """A share for each name. now: monotonic seconds."""

    def __init__(self, share: float, burst_s: float, now: Callable[[], float]) -> None:
        self._share = share
        self._ahead_s = burst_s / share
        self._now = now
        self._even_at: dict[str, float] = {}
        """When the past work of a name is within its share again."""
        self._usual_s: dict[str, float] = {}
        self._gates: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._even_at)

    async def turn(self, name: str) -> None:
        """Return when it may take the loop again; of several that wait, one after the other."""
        if self._wait_s(name) <= 0 and name not in self._gates:
            return
        async with self.first(name):
            pass

    @contextlib.asynccontextmanager
    async def first(self, name: str) -> AsyncIterator[None]:
        """Who is first of those that wait, and may take the loop; the next one waits until the end of the block."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = asyncio.Lock()
        async with gate:
            while (wait_s := self._wait_s(name)) > 0:  # noqa: ASYNC110  time, which nobody announces
                await asyncio.sleep(wait_s)
            yield

    def free(self, name: str) -> bool:
        """Whether it would not wait."""
        return self._wait_s(name) <= 0 and name not in self._gates

    def spend(self, name: str, seconds: float) -> None:
        """It has taken the loop for so long; below 0: it gives back what it did not take."""
        now = self._now()
        if len(self._even_at) >= NAMES_KEPT:
            self._even_at = {kept: even_at for kept, even_at in self._even_at.items() if even_at > now}
        self._even_at[name] = max(self._even_at.get(name, now), now) + seconds / self._share

    def usual_s(self, name: str) -> float:
        """What one of its requests takes, by those that were noted."""
        return self._usual_s.get(name, USUAL_S)

    def note(self, name: str, seconds: float) -> None:
        """One of its requests took so long."""
        if len(self._usual_s) >= NAMES_KEPT:
            self._usual_s.clear()
        self._usual_s[name] = (1 - USUAL_WEIGHT) * self.usual_s(name) + USUAL_WEIGHT * seconds

    @contextlib.contextmanager
    def charged(self, name: str) -> Iterator[None]:
        """It takes the loop within this block."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter() - began_s)

    def _wait_s(self, name: str) -> float:
        even_at = self._even_at.get(name)
        return 0.0 if even_at is None else even_at - self._now() - self._ahead_s


class LoopShares(Shares):
    """The shares of one process: of organizations in inference, by id; beside them, of everything else."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(SHARE, BURST_S, now)
        self.outside = Shares(OUTSIDE_SHARE, OUTSIDE_BURST_S, now)
        """Of organizations outside inference, by id."""
        self.strangers = StrangerShares(now)

    async def refused(self, network: str) -> None:
        """Who comes from there has no key: the refusal may be said when this returns, at the pace of that network; so
        many refusals from one would take the loop from everybody. network: empty where it is not known, which waits
        for nothing."""
        await self.strangers.turn(network)
        # only now: who asks and leaves would make everybody behind it wait for refusals that nobody was told
        self.strangers.spend(network, REFUSAL_S)


class StrangerShares:
    """A share for each network of strangers, and one for all of them together. An empty network is that of a proxy that
    does not say whose request it passes on: it waits for nothing."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._each = Shares(NETWORK_SHARE, NETWORK_BURST_S, now)
        self._all = Shares(STRANGERS_SHARE, STRANGERS_BURST_S, now)

    async def turn(self, network: str) -> None:
        """Return when the network may take the loop. Of each network one waits for the share of all, so that they take
        turns."""
        if not network or (self._each.free(network) and self._all.free("")):
            return
        async with self._each.first(network), self._all.first(""):
            pass

    def spend(self, network: str, seconds: float) -> None:
        """It has taken the loop for so long; below 0: it gives back what it did not take."""
        if network:
            self._each.spend(network, seconds)
            self._all.spend("", seconds)

    def usual_s(self, network: str) -> float:
        """What one of its requests takes."""
        return self._each.usual_s(network)

    def note(self, network: str, seconds: float) -> None:
        """One of its requests took so long."""
        self._each.note(network, seconds)
