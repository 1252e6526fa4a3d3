"""The worker's tasks for batches, which look for work and delete expired files.

A separate thread of the worker runs batches (`runner.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from celery import Celery

from contracts.errors import ConfigError
from control.batches import files
from control.batches.store import FileStore
from storage.engine import FAILURES, connect

WORK = "batches.work"
SWEEP = "batches.sweep"
PERIODS_S = {WORK: 2.0, SWEEP: 3_600.0}
"""Interval of each task."""
MAX_STUCK = 10
"""Files that one sweep may fail to delete; more show that the store itself cannot be used."""

_log = logging.getLogger(__name__)


def add_tasks(app: Celery, database_url: str, store: Callable[[], FileStore], wake: Callable[[], None]) -> None:
    """Register both tasks. wake: makes the process's runner look for batches, and returns at once."""

    @app.task(name=WORK, shared=False)  # type: ignore[untyped-decorator]
    def work() -> None:
        wake()

    @app.task(name=SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep() -> None:
        try:
            asyncio.run(delete_left_over(database_url, store()))
        except (*FAILURES, ConfigError) as error:
            _log.warning("batches: expired files could not be deleted, and are tried again: %r", error)


async def delete_left_over(database_url: str, store: FileStore) -> None:
    """Delete files that have expired, or are left over from a crash. A file that the store does not delete delays no
    others. Raises asyncpg's errors, and OSError if the store does not delete more than `MAX_STUCK` files."""
    stuck: set[str] = set()
    connection = await connect(database_url, name="slipstream-batches-sweep")
    try:
        while ids := [each for each in await files.left_over(connection) if each not in stuck]:
            for file_id in ids:
                try:
                    await store.delete(file_id)
                except OSError as error:
                    stuck.add(file_id)
                    if len(stuck) > MAX_STUCK:
                        raise
                    _log.warning("batches: file %s could not be deleted, and is tried again: %r", file_id, error)
                else:
                    await files.forget(connection, file_id)
    finally:
        await connection.close()
