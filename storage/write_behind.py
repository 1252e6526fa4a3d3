"""Writes rows to PostgreSQL in batches and a little later: no request waits for them or fails because of them.

Best effort: while the database is away the oldest rows are dropped, and so is a row that it cannot hold; the owner
counts them.
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
"""A database that hangs must not hold up the process's stop."""

logger = logging.getLogger(__name__)


def columnar_writer(statement: str) -> Callable[[asyncpg.Connection, Sequence[Iterable[object]]], Awaitable[object]]:
    """A write of rows by a statement that takes an array for each column."""

    async def write(connection: asyncpg.Connection, rows: Sequence[Iterable[object]]) -> None:
        await connection.execute(statement, *(list(column) for column in zip(*rows, strict=True)))

    return write


class WriteBehind(Generic[RowT]):
    """A bounded queue in front of one table.

    A row stays until its batch is committed: a write that is cut off, by the database or by the process's stop, is done
    again. So `write` must accept existing rows.
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
        """write: stores a batch in one statement. name: of the rows, in the log. most: rows that may wait."""
        self._pool = pool
        self._write = write
        self._name = name
        self._most = most
        self._batch = batch
        self._on_dropped = on_dropped
        self._waiting: deque[RowT] = deque()
        self._behind = False
        """The last batch was not taken, and that was said."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, row: RowT) -> None:
        """Remember a row; the oldest gives way where too many wait."""
        self._waiting.append(row)
        self._shorten()

    async def flush(self) -> None:
        """Write what waits. Raises nothing of the database's: it is tried again with the next call."""
        most = self._batch
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                    await self._write(connection, batch)
            except asyncpg.DataError as failure:
                # the statement holds the whole batch: it is halved until the row is alone that cannot be stored
                if len(batch) == 1:
                    logger.warning("a row of the %s cannot be stored and is dropped: %s", self._name, failure)
                    self._on_dropped()
                    most = self._batch
                else:
                    self._waiting.extendleft(reversed(batch))
                    most = len(batch) // 2
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
        """name: of the task, in the log."""
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
