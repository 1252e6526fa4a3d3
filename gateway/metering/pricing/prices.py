"""Keeps the prices that this gateway knows. Limits and the ledger both use the price that was known when a request
arrived, so they agree even if this gateway's prices are old.

The prices are read when a change is announced, and every second in case an announcement was lost. The last known prices
stay in force while the database is unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.errors import in_words
from gateway.metering.pricing.price import NO_PRICE, Price
from storage.engine import FAILURES, borrow

logger = logging.getLogger(__name__)

SELECT = """
SELECT version, model, extract(epoch FROM valid_from)::float8, extract(epoch FROM valid_until)::float8,
       input_micro, cached_input_micro, cache_write_micro, output_micro, offline_percent
  FROM gateway.prices WHERE valid_until IS NULL OR valid_until > now() - interval '31 days' ORDER BY model, valid_from
"""
"""Leaves out prices that ended too long ago for any new request."""
TIMEOUT_S = 5.0
POLL_S = 1.0
"""Longest time between two reads."""


class PriceBook:
    """Finds the price of a model at a moment. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool[Any] | None, poll_s: float = POLL_S) -> None:
        """pool: None for a book that only `replace` fills."""
        self._pool = pool
        self._poll_s = poll_s
        self._by_model: dict[str, tuple[list[float], list[Price]]] = {}
        self._task = BackgroundTask("prices", self._follow)
        self._announced = asyncio.Event()
        self._problem = ""
        self.loaded = False
        """Whether prices have been read. Until then, 'no price' may only mean that the database was unreachable."""

    async def start(self) -> None:
        """Read the prices and begin to follow them. Never raises for an unreachable database."""
        await self._refresh()
        self._task.start()

    async def stop(self) -> None:
        """Stop following; known prices stay. Idempotent."""
        await self._task.stop()

    def replace(self, prices: Iterable[Price]) -> None:
        """Use these prices, and no others."""
        by_model: dict[str, tuple[list[float], list[Price]]] = {}
        for price in sorted(prices, key=lambda one: one.valid_from):
            begins, known = by_model.setdefault(price.model, ([], []))
            begins.append(price.valid_from)
            known.append(price)
        self._by_model = by_model
        self.loaded = True

    def announced(self) -> None:
        """Read the prices at once, because one may have changed."""
        self._announced.set()

    def price(self, model: str, at: float) -> Price:
        """The price of a request for `model` that arrived at `at` (epoch seconds); NO_PRICE if it has none."""
        begins, known = self._by_model.get(model, ((), ()))
        found = bisect_right(begins, at) - 1
        if found < 0:
            return NO_PRICE
        price = known[found]
        return price if price.valid_until is None or at < price.valid_until else NO_PRICE

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._announced.wait()
            await self._refresh()

    async def _refresh(self) -> None:
        # cleared before the read, so that a change announced during it is read again
        self._announced.clear()
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT_S), borrow(self._pool) as connection:
                rows = await connection.fetch(SELECT)
        except FAILURES as error:
            before, self._problem = self._problem, in_words(error, TIMEOUT_S)
            if self._problem != before:  # one line for each problem
                logger.warning("prices cannot be read, the last known stay in force: %s", self._problem)
            return
        self._problem = ""
        self.replace(Price(*row) for row in rows)
