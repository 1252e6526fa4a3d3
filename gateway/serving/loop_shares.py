"""How much of the event loop one organization may take before any of its limits counts: a share, then it waits.

Limits count what was reserved. Reading and decoding a body and refusing it come before that, and keep every stream of
the process waiting meanwhile. So the time is charged to the organization, and one that is ahead of its share waits its
turn (a generic cell rate algorithm, in seconds of the loop). Nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable, Iterator

SHARE = 0.05
"""Of the loop's time, for one organization's large bodies and refused requests."""
BURST_S = 0.02
"""So much of the loop it may take at once."""
LARGE_BYTES = 16_384
"""A smaller body takes less than half a millisecond and is not charged."""
REFUSAL_S = 0.001
"""What a refused request costs around its body, its connection included."""
ORGANIZATIONS_KEPT = 10_000


class LoopShares:
    """The shares of one process. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._even_at: dict[str, float] = {}
        """When an organization's past work is within its share again."""
        self._gates: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._even_at)

    async def turn(self, organization_id: str) -> None:
        """Return when the organization may take the loop again; of several that wait, one after the other."""
        if self._wait_s(organization_id) <= 0 and organization_id not in self._gates:
            return
        gate = self._gates.get(organization_id)
        if gate is None:
            gate = self._gates[organization_id] = asyncio.Lock()
        async with gate:
            while (wait_s := self._wait_s(organization_id)) > 0:  # noqa: ASYNC110  time, which nobody announces
                await asyncio.sleep(wait_s)

    def spend(self, organization_id: str, seconds: float) -> None:
        """It has taken the loop for so long."""
        now = self._now()
        if len(self._even_at) >= ORGANIZATIONS_KEPT:
            self._even_at = {name: even_at for name, even_at in self._even_at.items() if even_at > now}
        self._even_at[organization_id] = max(self._even_at.get(organization_id, now), now) + seconds / SHARE

    async def refused(self, network: str) -> None:
        """Who comes from there has no key: the refusal may be said when this returns, at the pace of that network; so
        many refusals from one would take the loop from everybody. network: empty where it is not known, which waits
        for nothing."""
        if network:
            self.spend(network, REFUSAL_S)
            await self.turn(network)

    @contextlib.contextmanager
    def charged(self, organization_id: str) -> Iterator[None]:
        """It takes the loop within this block."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.spend(organization_id, time.perf_counter() - began_s)

    def _wait_s(self, organization_id: str) -> float:
        even_at = self._even_at.get(organization_id)
        return 0.0 if even_at is None else even_at - self._now() - BURST_S / SHARE
