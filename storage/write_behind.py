"""Writes rows to PostgreSQL later and in batches, so that no request waits for them or fails because of them.

Best effort: if too many rows wait, such as while the database is unreachable, the oldest are dropped, and so is a row
that the database cannot store. The owner counts them.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

import asyncpg

from contracts.background_task import BackgroundTask
from storage.engine import FAILURES, borrow

RowT = TypeVar("RowT")
WRITE_TIMEOUT_S = 5.0
"""A database that hangs must not delay the process's stop."""

logger = logging.getLogger(__name__)


def columnar_writer(statement: str) -> Callable[[asyncpg.Connection, Sequence[Iterable[object]]], Awaitable[object]]:
    """A function that writes rows with a statement that takes an array for each column."""

    async def write(connection: asyncpg.Connection, rows: Sequence[Iterable[object]]) -> None:
        await connection.execute(statement, *(list(column) for column in zip(*rows, strict=True)))

    return write


class WriteBehind(Generic[RowT]):
    """A bounded queue in front of one table.

    A row stays until its batch is committed: a write that the database or the process's stop interrupts is repeated. So
    `write` must accept existing rows.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        write: Callable[[asyncpg.Connection, Sequence[RowT]], Awaitable[object]],
        name: str,
        *,
        most: int,
        batch: int,
        on_dropped: Callable[[], None],
    ) -> None:
        """write: stores a batch in one statement. name: of the rows, in the log. most: limit of the waiting rows."""
        self._pool = pool
        self._write = write
        self._name = name
        self._most = most
        self._batch = batch
        self._on_dropped = on_dropped
        self._waiting: deque[RowT] = deque()
        self._behind = False
        """Whether the last batch could not be written, which was logged."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, row: RowT) -> None:
        """Queue a row. If too many wait, the oldest is dropped."""
        self._waiting.append(row)
        self._shorten()

    async def flush(self) -> None:
        """Write all waiting rows. Raises no database error: the next call retries."""
        limit = self._batch
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                    await self._write(connection, batch)
            except asyncpg.DataError as failure:
                # one bad row fails the whole batch, which is halved until that row is alone
                if len(batch) == 1:
                    logger.warning("a row of the %s cannot be stored and is dropped: %s", self._name, failure)
                    self._on_dropped()
                    limit = self._batch
                else:
                    self._waiting.extendleft(reversed(batch))
                    limit = len(batch) // 2
                continue
            except BaseException as failure:
                self._waiting.extendleft(reversed(batch))
                self._shorten()
                if not isinstance(failure, FAILURES):
                    raise
                if not self._behind:
                    logger.warning("%s wait for the database: %s", self._name, failure)
                self._behind = True
                return
            self._behind = False

    def _shorten(self) -> None:
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self._on_dropped()


class WrittenBehind(abc.ABC):
    """A store that writes its queues every few seconds, and at its stop."""

    def __init__(self, flush_s: float, name: str) -> None:
        """name: the task's name in the log."""
        self._task = BackgroundTask.every(flush_s, self.flush, name)

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task.start()

    async def stop(self) -> None:
        """Write the queues and end."""
        await self._task.stop()
        await self.flush()

    @abc.abstractmethod
    async def flush(self) -> None:
        """Write the queues. Raises no database error: the next call retries."""
