"""The prices as this gateway knows them, for limits in money. The ledger's own amounts are computed in the database.

A price may begin at any later time, and every gateway knows it before: the whole table is read again every few seconds,
and what was read last stays in force while the database is away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.errors import in_words
from gateway.db.engine import FAILURES, borrow
from gateway.metering.pricing.price import Price

logger = logging.getLogger(__name__)

SELECT = """
SELECT version, model, extract(epoch FROM valid_from)::float8, extract(epoch FROM valid_until)::float8,
       input_micro, cached_input_micro, cache_write_micro, output_micro
  FROM gateway.prices ORDER BY model, valid_from
"""


class PriceBook:
    """Answers what a model costs at a moment. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool[Any] | None, refresh_s: float = 5.0, timeout_s: float = 5.0) -> None:
        """pool: None for a book that is only filled by `replace`."""
        self._pool = pool
        self._timeout_s = timeout_s
        self._by_model: dict[str, tuple[list[float], list[Price]]] = {}
        self._task = BackgroundTask.every(refresh_s, self._refresh, "prices")
        self.loaded = False
        """Prices have been read at least once: until then 'no price' may only mean that the database was away."""

    async def start(self) -> None:
        """Read the prices and begin to follow them. Never raises for a lost database."""
        await self._refresh()
        self._task.start()

    async def stop(self) -> None:
        """Stop following; what is known stays. Idempotent."""
        await self._task.stop()

    def replace(self, prices: Iterable[Price]) -> None:
        """Take these prices, and no others, for the truth."""
        by_model: dict[str, tuple[list[float], list[Price]]] = {}
        for price in sorted(prices, key=lambda one: one.valid_from):
            begins, known = by_model.setdefault(price.model, ([], []))
            begins.append(price.valid_from)
            known.append(price)
        self._by_model = by_model
        self.loaded = True

    def price(self, model: str, at: float | None = None) -> Price | None:
        """The price of a request for `model` that arrived at `at` (epoch seconds; None: now); None when it has none."""
        begins, known = self._by_model.get(model, ((), ()))
        moment = time.time() if at is None else at
        found = bisect_right(begins, moment) - 1
        if found < 0:
            return None
        price = known[found]
        return price if price.valid_until is None or moment < price.valid_until else None

    def bound_micro(self, model: str, prompt_tokens: int, max_output_tokens: int, at: float | None = None) -> int:
        """The most a request can cost, in micro-units: what its `amount_micro` will not exceed. 0 without a price.

        prompt_tokens: the most the prompt can be; max_output_tokens: all choices together.
        """
        price = self.price(model, at)
        return 0 if price is None else price.bound_micro(prompt_tokens, max_output_tokens)

    async def _refresh(self) -> None:
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s), borrow(self._pool) as connection:
                rows = await connection.fetch(SELECT)
        except FAILURES as error:
            logger.warning("prices: not read, the last known stay in force: %s", in_words(error, self._timeout_s))
            return
        self.replace(Price(*row) for row in rows)
