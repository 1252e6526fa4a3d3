"""Decides which grammar is compiled next: organizations in turn, one grammar of each at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from contracts.errors import Overloaded, RateLimited

RETRY_AFTER_S = 1.0


class Turns:
    """A number of slots, each given to one organization until it returns it. Lives on the event loop."""

    def __init__(self, places: int, tenant_waiting: int, timeout_s: float) -> None:
        """tenant_waiting: the most grammars of one organization that may wait. timeout_s: the longest wait."""
        self._free = places
        self._tenant_waiting = tenant_waiting
        self._timeout_s = timeout_s
        self._served: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """In the order of the tenants' turns."""

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it. Raises RateLimited when too many of this organization wait already, and
        Overloaded when no slot comes free in time."""
        await self._wait(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    async def _wait(self, tenant: str) -> None:
        own = self._waiting.get(tenant, deque())
        if len(own) >= self._tenant_waiting:
            raise RateLimited(
                f"{len(own)} grammars of your organization wait to be compiled on this engine, which is the limit. "
                "Send fewer new ones at a time.",
                retry_after_s=RETRY_AFTER_S,
            )
        place = asyncio.get_running_loop().create_future()
        own.append(place)
        self._waiting.setdefault(tenant, own)
        self._hand_out()
        try:
            async with asyncio.timeout(self._timeout_s):
                await place
        except BaseException as error:
            # granted at the very moment of leaving
            if place.done() and not place.cancelled():
                self._give_back(tenant)
            else:
                self._forget(tenant, place)
            if isinstance(error, TimeoutError):
                raise Overloaded(
                    f"No grammar compiler came free within {self._timeout_s:g} s.", retry_after_s=RETRY_AFTER_S
                ) from None
            raise

    def _give_back(self, tenant: str) -> None:
        self._free += 1
        self._served.discard(tenant)
        if (own := self._waiting.pop(tenant, None)) is not None:
            # after all who wait
            self._waiting[tenant] = own
        self._hand_out()

    def _forget(self, tenant: str, place: asyncio.Future[None]) -> None:
        own = self._waiting[tenant]
        own.remove(place)
        if not own:
            del self._waiting[tenant]

    def _hand_out(self) -> None:
        while self._free:
            tenant = next((tenant for tenant in self._waiting if tenant not in self._served), None)
            if tenant is None:
                return
            own = self._waiting[tenant]
            place = own.popleft()
            if not own:
                del self._waiting[tenant]
            self._free -= 1
            self._served.add(tenant)
            place.set_result(None)
