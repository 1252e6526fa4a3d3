"""Stores prompts and completions at gaps, for organizations that have turned `store_prompts` on.

Best effort, in batches and with a delay, like the editors' reports. The statement that writes checks the setting again
(storage/stored_prompts.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from contracts.dated_request_id import arrived_at_s
from contracts.generation import Caller
from gateway.observability.metrics import GatewayMetrics
from gateway.wire.gap import Gap
from storage.storable_text import storable
from storage.stored_prompts import insert_where_stored
from storage.write_behind import WriteBehind, WrittenBehind, columnar_writer

MAX_WAITING = 2_000
BATCH = 200
MAX_CHARACTERS = 2_000
"""Limit per text: the last characters of a prefix, the first of a suffix and a completion."""
INSERT = insert_where_stored(
    "gateway.completion_texts",
    request_id="text",
    project_id="uuid",
    organization_id="uuid",
    asked_at="timestamptz",
    prefix="text",
    suffix="text",
    completion="text",
)


class Texts(NamedTuple):
    """A row of `gateway.completion_texts`, and its request's time."""

    request_id: str
    project_id: str
    organization_id: str
    asked_at: datetime
    prefix: str
    suffix: str
    completion: str | None


class TextStore(WrittenBehind):
    """A bounded buffer in front of `gateway.completion_texts`. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        self._rows = WriteBehind(
            pool,
            columnar_writer(INSERT),
            "texts of completions",
            most=MAX_WAITING,
            batch=BATCH,
            on_dropped=metrics.completion_texts_dropped.inc,
        )
        super().__init__(flush_s, "completion texts")

    def add(self, request_id: str, caller: Caller, gap: Gap, completion: str | None) -> None:
        """Queue an answered gap of an organization that stores prompts. completion: None if it was passed on unread."""
        texts = storable(gap.prefix[-MAX_CHARACTERS:]), storable(gap.suffix[:MAX_CHARACTERS])
        answer = None if completion is None else storable(completion[:MAX_CHARACTERS])
        asked_at = datetime.fromtimestamp(arrived_at_s(request_id) or 0.0, UTC)
        self._rows.add(Texts(request_id, caller.project_id, caller.organization_id, asked_at, *texts, answer))

    async def flush(self) -> None:
        await self._rows.flush()
