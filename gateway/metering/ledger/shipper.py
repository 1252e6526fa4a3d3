"""Ships durable closed records from the journal to the ledger, in order and in batches, however long it takes.

The journal's position moves only after the ledger has committed. After a crash in between, a batch is shipped twice,
which the ledger's key makes harmless. There is no queue in memory, because each batch is read from the journal's files.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

import asyncpg
import msgspec

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.errors import in_words
from gateway.metering.config import MeteringConfig
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import REFUSED, Ledger
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_IDLE_S = 1.0


class Shipper:
    """Ships one journal, and drops no row: refused rows are kept next to the journal and logged as errors."""

    def __init__(self, journal: Journal, ledger: Ledger, config: MeteringConfig, metrics: MeteringMetrics) -> None:
        self._journal = journal
        self._ledger = ledger
        self._config = config
        self._metrics = metrics
        self._position = (0, 0)
        self._moved = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task = BackgroundTask("ledger shipper", self._run)

    def start(self) -> None:
        """Begin to ship. The journal must have been started."""
        self._position = self._journal.shipped()
        self._task.start()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything durable so far is in the ledger, whatever follows; False if that takes longer."""
        end = self._journal.end
        self._hurry.set()
        self._journal.fresh.set()
        try:
            async with asyncio.timeout(timeout_s):
                while self._position < end:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry.clear()
        return True

    async def stop(self) -> None:
        """Stop shipping and save the position. The remaining rows are shipped after the next start."""
        if await self._task.stop():
            await self._journal.advance(self._position, 0, save=True)

    async def _run(self) -> None:
        while True:
            self._journal.fresh.clear()
            try:
                rows, end = await self._journal.read(self._position, self._config.batch_rows)
                if rows:
                    await self._ship(rows)
                if rows or end != self._position:
                    self._position = end
                    await self._journal.advance(end, len(rows))
            except Exception:  # any error, because shipping must not end
                logger.exception("journal %s: cannot be read back; retrying", self._journal.instance)
                await asyncio.sleep(self._config.probe_interval_s)
                continue
            self._metrics.backlog_rows.set(self._journal.backlog_rows)
            self._moved.set()
            if not rows:
                await self._rest()
            elif len(rows) < self._config.batch_rows:
                await _wait(self._hurry, self._config.ship_interval_s)

    async def _rest(self) -> None:
        """Wait for rows, then let them collect for a moment."""
        self._metrics.oldest_age_s.set(0)
        if not await _wait(self._journal.fresh, _IDLE_S):
            await self._journal.advance(self._position, 0)
            await self._journal.fresh.wait()
        await _wait(self._hurry, self._config.ship_interval_s)

    async def _ship(self, rows: list[Closed]) -> None:
        """Return once each row is in the ledger, or set aside because it can never be."""
        backoff = Backoff(_FIRST_PAUSE_S, self._config.retry_max_s, jitter=0.25)
        for attempt in itertools.count():
            self._metrics.backlog_rows.set(self._journal.backlog_rows)
            self._metrics.oldest_age_s.set(max(0.0, time.time() - rows[0].closed_at))
            try:
                self._count(len(rows), await self._ledger.insert(rows, self._journal.instance))
                return
            except REFUSED as error:
                if len(rows) > 1:
                    # Halving finds the faulty row in few statements and lets all others through.
                    await self._ship(rows[: len(rows) // 2])
                    await self._ship(rows[len(rows) // 2 :])
                    return
                if await self._set_aside(rows[0], error):
                    return
            except Exception as error:  # any error: the rows are still here
                if not attempt:
                    logger.warning("ledger: %d rows not shipped, retrying: %s", len(rows), in_words(error))
            self._metrics.ship_errors.inc()
            await asyncio.sleep(backoff.next_s())

    async def _set_aside(self, row: Closed, error: asyncpg.PostgresError) -> bool:
        """Handle a row that the ledger refused. Returns False if it must be retried."""
        if isinstance(error, asyncpg.UniqueViolationError) and row.billed:
            # The key itself cannot be violated, so it is the rule that one attempt of a request is billed.
            logger.error("ledger: a second billed attempt of %s, attempt %d, is recorded as not billed", *row.key)
            try:
                new = await self._ledger.insert([msgspec.structs.replace(row, billed=False)], self._journal.instance)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return False
            self._count(1, new)
            self._metrics.billed_twice.inc()
            return True
        try:
            await asyncio.to_thread(self._journal.refuse, row, in_words(error))
        except OSError:
            return False
        logger.error("ledger: row of %s, attempt %d, refused and kept in refused.jsonl: %s", *row.key, error)
        self._metrics.refused.inc()
        return True

    def _count(self, rows: int, new: int) -> None:
        self._metrics.shipped.inc(new)
        self._metrics.duplicates.inc(rows - new)


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event was set within `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
