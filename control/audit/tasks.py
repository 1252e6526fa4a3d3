"""The worker's task that records the audit log's head outside the database."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from celery import Celery

from control.audit.chain import OWNED, may_alter
from control.audit.heads import NotedHead, current_head, note
from storage.engine import FAILURES, connect

NOTE_HEAD = "audit.note_head"
AT_START = (NOTE_HEAD,)
"""Run when a worker starts: its schedule is in memory, so a worker that restarts daily would never run them."""

EMPTY_PAUSE_S = 5.0

_log = logging.getLogger(__name__)


def add_tasks(app: Celery, database_url: str, folder: Path) -> None:
    """Register the task. If the database or the folder is unavailable, the next run retries."""

    @app.task(name=NOTE_HEAD, shared=False)  # type: ignore[untyped-decorator]
    def note_head() -> None:
        try:
            head = asyncio.run(_head(database_url))
            if head is None:  # a deployment that starts for the first time has its first rows soon
                note_head.apply_async(countdown=EMPTY_PAUSE_S)
                return
            note(folder, head)
            _log.info("audit log: head %d:%s, %d rows", head.id, head.hash, head.rows)
        except FAILURES as error:
            _log.error("the head of the audit log could not be recorded: %r", error)


async def _head(database_url: str) -> NotedHead | None:
    connection = await connect(database_url, name="slipstream-audit")
    try:
        if await may_alter(connection):
            _log.warning(OWNED)
        return await current_head(connection)
    finally:
        await connection.close()
