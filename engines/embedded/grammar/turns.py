"""Decides which grammar is compiled next. Organizations take turns, each with one grammar at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from contracts.errors import Overloaded, RateLimited

RETRY_AFTER_S = 1.0


class Turns:
    """Slots, each held by one organization until its grammar is compiled. The class runs on the event loop."""

    def __init__(self, places: int, tenant_waiting: int, timeout_s: float) -> None:
        """places: slots. tenant_waiting: maximum waiting grammars per organization. timeout_s: longest wait."""
        self._free = places
        self._tenant_waiting = tenant_waiting
        self._timeout_s = timeout_s
        self._served: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting grammars by tenant, in the order of the tenants' turns."""

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Raises RateLimited if too many grammars of this organization wait already, and
        Overloaded if no slot becomes free in time."""
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
        slot = asyncio.get_running_loop().create_future()
        own.append(slot)
        self._waiting.setdefault(tenant, own)
        self._hand_out()
        try:
            async with asyncio.timeout(self._timeout_s):
                await slot
        except BaseException as error:
            # the slot was granted while this request gave up
            if slot.done() and not slot.cancelled():
                self._give_back(tenant)
            else:
                self._forget(tenant, slot)
            if isinstance(error, TimeoutError):
                raise Overloaded(
                    f"No grammar compiler came free within {self._timeout_s:g} s.", retry_after_s=RETRY_AFTER_S
                ) from None
            raise

    def _give_back(self, tenant: str) -> None:
        self._free += 1
        self._served.discard(tenant)
        if (own := self._waiting.pop(tenant, None)) is not None:
            # its next turn is after all waiting tenants
            self._waiting[tenant] = own
        self._hand_out()

    def _forget(self, tenant: str, slot: asyncio.Future[None]) -> None:
        own = self._waiting.get(tenant)
        if own is None or slot not in own:  # `_hand_out` has passed it over
            return
        own.remove(slot)
        if not own:
            del self._waiting[tenant]

    def _hand_out(self) -> None:
        while self._free:
            tenant = next((tenant for tenant in self._waiting if tenant not in self._served), None)
            if tenant is None:
                return
            own = self._waiting[tenant]
            slot = own.popleft()
            if not own:
                del self._waiting[tenant]
            if slot.cancelled():  # its request gives up, but has not run since
                continue
            self._free -= 1
            self._served.add(tenant)
            slot.set_result(None)
