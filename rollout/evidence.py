"""What requests of both arms were measured at, each consumed once although traces are written late and by many.

Every row has its writer's transaction id. What lies below the oldest transaction that is still open is all there is:
nothing can be committed behind it any more. So a step takes the rows from the last step's watermark up to there,
whatever order they were written in, and its transaction moves the watermark.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import ColumnElement, Text, and_, case, cast, func, literal, null, or_, select

from contracts.errors import ContextTooLong
from contracts.split import Side
from evals.judge import Arm, Observation
from gateway.db.rows import fetch, fetchval
from gateway.db.tables import request_traces
from gateway.metering.journal.request_id import first_at
from gateway.releases.release import Release
from gateway.slo.judged import judged, newest_version
from gateway.slo.judgement import CLIENT_GONE

HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
DRAWN_OF = 1 << 20
"""Sessions are drawn by this many hash values."""
OF_A_SESSION = 50
"""The first so many requests of a session that one step takes: it throws one coin for each test, and a flood of
requests must not take the others' place."""
SEED = 0x736C6970
"""Of the hash that draws: not the one that put a session on its side."""
_T = request_traces.c
EXTRA = (_T.request_id, _T.side, _T.unit, _T.status, _T.total_ms, _T.transaction_id)
_REFUSED = and_(_T.status >= 400, _T.status < 500, func.coalesce(_T.error_code, "") != CLIENT_GONE)
_BY_NOBODY = and_(_T.pool.is_(None), func.coalesce(_T.error_code, "") != ContextTooLong.code)
UNPLACED: ColumnElement[bool] = and_(_REFUSED, or_(_BY_NOBODY, _T.status == 429))
"""Refused by the gateway before an engine had it, or by a limit of the customer's: no arm had a part in it. That a
prompt is too long for every engine of an arm is the arm's."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What one step consumed, in the order in which it was judged."""

    observations: tuple[Observation, ...] = ()
    slices: str = ""
    """The gate's verdict, if it came with this step."""
    worse: int = 0
    """Votes that came, by which the candidate's answer was the worse one, and the better one."""
    better: int = 0

    @property
    def holds_something(self) -> bool:
        """There is anything to judge."""
        return bool(self.observations or self.slices or self.worse or self.better)


class Reading(msgspec.Struct, frozen=True):
    """What there was to read."""

    observations: tuple[Observation, ...]
    sampled: float
    """Part of the sessions that they are drawn from."""
    watermark: int
    """Where the next one begins."""


def packed(batch: Batch) -> bytes:
    """For the step's row; `unpacked` gives back the same, to the bit."""
    return zlib.compress(msgspec.msgpack.encode(batch))


def unpacked(evidence: bytes | None) -> Batch:
    """What a step's row holds; nothing where it consumed nothing."""
    return Batch() if evidence is None else msgspec.msgpack.decode(zlib.decompress(evidence), type=Batch)


async def horizon(connection: asyncpg.Connection[Any]) -> int:
    """The transaction id below which every row there will ever be can be read."""
    found: int = await connection.fetchval(HORIZON)
    return found


async def read(connection: asyncpg.Connection[Any], release: Release, end: int, most: int) -> Reading:
    """What both arms did between the release's watermark and `end`, a horizon. most: requests to take."""
    assert release.watermark is not None
    span = and_(_T.transaction_id >= release.watermark, _T.transaction_id < end)
    return await _read(connection, release, span, end, most)


async def early(connection: asyncpg.Connection[Any], release: Release, end: int, most: int) -> Reading:
    """What can be seen behind `end`, a horizon, already. Others may be written before it: whoever goes on must read
    it once more from there."""
    return await _read(connection, release, _T.transaction_id >= end, end, most)


async def _read(
    connection: asyncpg.Connection[Any], release: Release, span: ColumnElement[bool], end: int, most: int
) -> Reading:
    fresh = and_(
        _T.release == str(release.id),
        span,
        _T.side.in_([Side.CANDIDATE.value, Side.CONTROL.value]),
        ~UNPLACED,
    )
    of_session = select(func.least(func.count(), OF_A_SESSION).label("taken")).where(fresh).group_by(_T.unit).subquery()
    found = int(await fetchval(connection, select(func.coalesce(func.sum(of_session.c.taken), 0))))
    drawn = DRAWN_OF if found <= most else DRAWN_OF * most // found
    if drawn < DRAWN_OF:
        fresh = and_(fresh, func.hashint8extended(_T.unit, SEED).op("&")(DRAWN_OF - 1) < drawn)
    each = judged(newest_version().scalar_subquery(), fresh, extra=EXTRA)
    of = each.c
    left = or_(of.is_abandoned, of.is_superseded)
    # customers' own bad requests are refused on both arms alike; a candidate that refuses more of them is a worse one
    refused = and_(of.status >= 400, of.status < 500, ~left)
    silent = and_(of.status < 300, ~left, of.ttft_ms.is_(None))
    failed = or_(of.is_failed, refused, silent)
    # who left before the first text, or typed on, has waited at least so long; an end without a text came then
    waited = or_(left, and_(silent, of.completion_tokens > 0))
    ttft_ms = case((waited, func.coalesce(of.ttft_ms, of.total_ms)), else_=of.ttft_ms)
    gone = and_(left, of.ttft_ms.is_(None))
    good = case((of.is_counted, of.is_good), else_=null())
    in_order = (of.transaction_id, of.request_id)
    nth = func.row_number().over(partition_by=of.unit, order_by=in_order).label("nth")
    measured = (ttft_ms.label("ttft_ms"), of.itl_max_ms, failed.label("failed"), good.label("good"), gone.label("gone"))
    numbered = select(*in_order, nth, of.side, of.unit, *measured).select_from(each).subquery()
    taken = numbered.c
    rows = await fetch(
        connection,
        select(numbered).where(taken.nth <= OF_A_SESSION).order_by(taken.transaction_id, taken.request_id),
    )
    observations = tuple(
        Observation(
            Arm(row["side"]),
            row["unit"],
            row["ttft_ms"],
            row["itl_max_ms"],
            bool(row["failed"]),
            row["good"],
            row["gone"],
        )
        for row in rows
    )
    return Reading(observations, drawn / DRAWN_OF, end)


async def baseline(
    connection: asyncpg.Connection[Any], release: Release, *, days: int, most: int
) -> tuple[list[float], list[float]]:
    """Times to the first token and longest gaps, in ms, of the newest requests that the baseline answered."""
    rows = await fetch(
        connection,
        select(_T.ttft_ms, _T.itl_max_ms)
        .where(
            _T.request_id >= first_at(time.time() - days * 86_400),
            _T.model == release.model,
            _T.pool == release.baseline_pool,
            _T.ttft_ms.is_not(None),
            _T.status < 300,
            func.coalesce(_T.side, cast(Side.BASELINE.value, Text)) == Side.BASELINE.value,
        )
        .order_by(_T.request_id.desc())
        .limit(literal(most, literal_execute=True)),
    )
    return [row["ttft_ms"] for row in rows], [row["itl_max_ms"] for row in rows if row["itl_max_ms"] is not None]
