"""Stores pairs, and the texts of pairs for review: best effort, in batches and with a delay."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg
import msgspec

from gateway.shadow.comparison import Comparison
from gateway.shadow.metrics import ShadowMetrics
from gateway.shadow.pair import Pair, PairTexts
from storage.storable_text import storable
from storage.stored_prompts import insert_where_stored
from storage.write_behind import WriteBehind, WrittenBehind, columnar_writer

MAX_PAIRS = 5_000
MAX_REVIEWS = 100
"""Limit of queued reviews, each with up to three texts, while the database is unavailable."""
BATCH = 500
_OF_PAIR = tuple(name for name in Pair.__struct_fields__ if name != "comparison")
_COLUMNS = (*_OF_PAIR, *Comparison.__struct_fields__)
# Each row is one JSON object, which the table's own types parse.
INSERT_PAIRS = f"""
    INSERT INTO gateway.shadow_pairs ({", ".join(_COLUMNS)})
    SELECT {", ".join(_COLUMNS)} FROM jsonb_populate_recordset(NULL::gateway.shadow_pairs, $1::text::jsonb)
        ON CONFLICT DO NOTHING
"""  # noqa: S608  names of our own columns
INSERT_REVIEWS = insert_where_stored(
    "gateway.reviews",
    "projects",
    id="uuid",
    project_id="uuid",
    asked_at="timestamptz",
    model="text",
    release="text",
    unit="bigint",
    stage_share="float8",
    candidate_left="boolean",
    prompt="text",
    baseline="text",
    candidate="text",
)


class _Review(NamedTuple):
    """A row of `gateway.reviews`, and its request's time."""

    id: str
    project_id: str
    asked_at: datetime
    model: str
    release: str
    unit: int
    stage_share: float
    candidate_left: bool
    prompt: str
    baseline: str
    candidate: str


class PairStore(WrittenBehind):
    """Bounded buffers in front of `gateway.shadow_pairs` and `gateway.reviews`. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool, metrics: ShadowMetrics, flush_s: float) -> None:
        dropped = metrics.pairs_dropped.inc
        self._pairs = WriteBehind(pool, _write, "shadow pairs", most=MAX_PAIRS, batch=BATCH, on_dropped=dropped)
        self._reviews = WriteBehind(
            pool,
            columnar_writer(INSERT_REVIEWS),
            "texts of reviews",
            most=MAX_REVIEWS,
            batch=MAX_REVIEWS,
            on_dropped=dropped,
        )
        super().__init__(flush_s, "shadow pairs")

    def add(self, pair: Pair, texts: PairTexts | None) -> None:
        """Queue a pair. texts: for reviewers, in a display order that is drawn here; None if not kept."""
        self._pairs.add(pair)
        if texts is None:
            return
        review_id = f"{secrets.randbits(128):032x}"
        stored_texts = (storable(text) for text in (texts.prompt, texts.baseline, texts.candidate))
        origin = texts.project_id, texts.asked_at
        self._reviews.add(
            _Review(
                review_id,
                *origin,
                pair.model,
                pair.release,
                pair.unit,
                pair.stage_share,
                secrets.randbits(1) == 1,
                *stored_texts,
            )
        )

    async def flush(self) -> None:
        await self._pairs.flush()
        await self._reviews.flush()


async def _write(connection: asyncpg.Connection, rows: Sequence[Pair]) -> None:
    flat = [
        {
            **{name: getattr(pair, name) for name in _OF_PAIR},
            **({} if pair.comparison is None else msgspec.structs.asdict(pair.comparison)),
        }
        for pair in rows
    ]
    await connection.execute(INSERT_PAIRS, msgspec.json.encode(flat).decode())
