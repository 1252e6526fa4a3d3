"""Stores the texts where prompts differ, only for organizations that store prompts (`store_prompts`).

Best effort, like the samples. Few texts are enough: one per interval for each template, cause and part. The statement
that writes checks the organization's setting again (storage/stored_prompts.py).
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from contracts.dated_request_id import arrived_at_s
from gateway.prefixes.excerpt import Excerpt
from gateway.prefixes.observer import PrefixSample
from storage.storable_text import storable
from storage.stored_prompts import insert_where_stored
from storage.write_behind import WriteBehind, columnar_writer

MAX_WAITING = 500
EVERY_S = 60.0
"""Interval between two texts of the same organization, template, cause and part."""
KNOWN = 10_000
"""Limit of remembered combinations of organization, template, cause and part."""
INSERT = insert_where_stored(
    "gateway.prefix_texts",
    request_id="text",
    project_id="uuid",
    organization_id="uuid",
    asked_at="timestamptz",
    template="text",
    cause="text",
    part="text",
    part_number="integer",
    earlier="text",
    later="text",
)


class Texts(NamedTuple):
    """A row of `gateway.prefix_texts`, and its request's time."""

    request_id: str
    project_id: str
    organization_id: str
    asked_at: datetime
    template: str
    cause: str
    part: str | None
    part_number: int | None
    earlier: str | None
    later: str


class PrefixTexts:
    """A bounded buffer in front of `gateway.prefix_texts`. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._rows = WriteBehind(
            pool,
            columnar_writer(INSERT),
            "texts of prefixes",
            most=MAX_WAITING,
            batch=MAX_WAITING,
            on_dropped=lambda: None,
        )
        self._last_s: OrderedDict[tuple[str, str, str, str | None], float] = OrderedDict()

    def add(self, sample: PrefixSample, found: Excerpt, at_s: float) -> None:
        """Queue the texts of a difference. at_s: time by any clock that does not go back."""
        key = sample.organization_id, sample.template, sample.cause, sample.part
        if at_s - self._last_s.get(key, -EVERY_S) < EVERY_S:
            return
        self._last_s[key] = at_s
        self._last_s.move_to_end(key)
        if len(self._last_s) > KNOWN:
            self._last_s.popitem(last=False)
        earlier = None if found.earlier is None else storable(found.earlier)
        self._rows.add(
            Texts(
                sample.request_id,
                sample.project_id,
                sample.organization_id,
                datetime.fromtimestamp(arrived_at_s(sample.request_id) or 0.0, UTC),
                sample.template,
                sample.cause,
                sample.part,
                sample.part_number,
                earlier,
                storable(found.later),
            )
        )

    async def flush(self) -> None:
        """Write the queue. Raises no database error: the next call retries."""
        await self._rows.flush()
