"""Reports this gateway's view of the desired state: the version in force, and the version that it refuses and why. An
operator who edits the fleet can then see, for example, that one machine lacks a tokenizer (control/fleet/reports.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from storage.engine import FAILURES, borrow

TELL_EVERY_S = 10.0
TELL = """
INSERT INTO gateway.fleet_gateways AS told (instance, version, refused_version, refusal, seen_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (instance) DO UPDATE SET version = excluded.version, refused_version = excluded.refused_version,
    refusal = excluded.refusal, seen_at = excluded.seen_at
"""
_log = logging.getLogger(__name__)


class Reporter:
    """Reports this gateway's view of the desired state, at once after a change and every ten seconds."""

    def __init__(self, pool: asyncpg.Pool[Any], instance: str, timeout_s: float) -> None:
        self._pool = pool
        self._instance = instance
        self._timeout_s = timeout_s
        self._version = 0
        self._refused: tuple[int | None, str | None] = (None, None)
        self._changed = asyncio.Event()
        self._task = BackgroundTask("fleet reports", self._tell_forever)

    def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        """Stop reporting. Idempotent."""
        await self._task.stop()

    def serves(self, version: int) -> None:
        """Report that this version is in force here."""
        self._version = version
        if version >= (self._refused[0] or 0):
            self._refused = (None, None)
        self._changed.set()

    def refuses(self, version: int, why: str) -> None:
        """Report that this version is refused here; the version in force stays."""
        if self._refused != (version, why):
            self._refused = (version, why)
            self._changed.set()

    async def _tell_forever(self) -> None:
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._timeout_s), borrow(self._pool) as connection:
                    await connection.execute(TELL, self._instance, self._version, *self._refused)
            except FAILURES as error:
                _log.debug("desired state: this gateway could not report its version: %r", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TELL_EVERY_S):
                    await self._changed.wait()
