"""What requests of both arms were measured at, each consumed once although traces are written late and by many.

Every row has its writer's transaction id. What lies below the oldest transaction that is still open is all there is:
nothing can be committed behind it any more. So a step takes the rows from the last step's watermark up to there,
whatever order they were written in, and its transaction moves the watermark.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import ColumnElement, and_, case, func, null, or_, select

from contracts.dated_request_id import first_at
from contracts.errors import ContextTooLong
from contracts.split import Side
from control.releases.judge import Arm, Copy, Observation
from control.releases.release import Release
from control.releases.rollout.shares import Sessions, ceiling, chosen, parts_of, share_of
from control.slo.judged import REFUSED_LATER, judged, newest_version
from control.slo.judgement import CLIENT_GONE
from storage.rows import fetch
from storage.tables.core import request_traces

HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
DRAWN_OF = 1 << 20
"""Sessions are drawn by this many hash values."""
OF_A_SESSION = 50
"""The first so many requests of a session that one step takes: it throws one coin for each test, and a flood of
requests must not take the others' place."""
_T = request_traces.c
EXTRA = (
    _T.request_id, _T.organization_id, _T.side, _T.unit, _T.status, _T.total_ms, _T.transaction_id,
    REFUSED_LATER.label("is_refused_later"),
)  # fmt: skip
_REFUSED = and_(_T.status >= 400, _T.status < 500, func.coalesce(_T.error_code, "") != CLIENT_GONE)
_BY_NOBODY = and_(_T.pool.is_(None), func.coalesce(_T.error_code, "") != ContextTooLong.code)
UNPLACED: ColumnElement[bool] = and_(_REFUSED, or_(_BY_NOBODY, _T.status == 429))
"""Refused by the gateway before an engine had it, or by a limit of the customer's: no arm had a part in it. That a
prompt is too long for every engine of an arm is the arm's."""


# Organizations by one step of the index each; of every one its newest, so that a flood of one pushes out no other's.
_BASELINE = """
WITH RECURSIVE who AS (
    (SELECT organization_id AS id FROM gateway.request_traces ORDER BY organization_id LIMIT 1)
    UNION ALL
    SELECT (SELECT organization_id FROM gateway.request_traces WHERE organization_id > who.id
             ORDER BY organization_id LIMIT 1)
      FROM who WHERE who.id IS NOT NULL
)
SELECT {columns} FROM who CROSS JOIN LATERAL (
    SELECT {time} AS time_ms FROM gateway.request_traces
     WHERE organization_id = who.id AND request_id >= $1 AND model = $2 AND pool = $3 AND {time} IS NOT NULL
       AND status < 300 AND coalesce(side, 'baseline') = 'baseline'
     ORDER BY request_id DESC LIMIT $4
) AS newest {grouped}
"""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What one step consumed, in the order in which it was judged."""

    observations: tuple[Observation, ...] = ()
    slices: str = ""
    """The gate's verdict, if it came with this step."""
    worse: int = 0
    """Votes that came, by which the candidate's answer was the worse one, and the better one."""
    better: int = 0
    organizations: dict[str, int] = {}
    """Sessions among `observations` that no step before had, by organization."""
    copies: tuple[Copy, ...] = ()
    """Of requests, in the order in which they were judged."""

    @property
    def holds_something(self) -> bool:
        """There is anything to judge."""
        return bool(self.observations or self.slices or self.worse or self.better or self.copies)


class Reading(msgspec.Struct, frozen=True):
    """What there was to read."""

    observations: tuple[Observation, ...]
    organizations: dict[str, int]
    """As of `Batch`."""
    left_out: int
    """Sessions beyond one organization's share."""
    sampled: float
    """Part of the sessions that they are drawn from."""
    watermark: int
    """Where the next one begins."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the sessions there are, a look takes."""

    most: int
    """Requests."""
    sessions: Sessions
    """That were taken before."""
    share: float
    """The part of them that one organization may have."""
    secret: str
    """Of the release's split (`Canary.salt`)."""

    def key(self, purpose: str) -> bytes:
        """Key of a hash that draws sessions: tenants cannot compute the choice, and it is independent of their side."""
        return hashlib.blake2b(self.secret.encode(), digest_size=8, person=purpose.encode()).digest()


def joined(batch: Batch, early: Reading) -> Batch:
    """With what could be seen early."""
    names = sorted(batch.organizations.keys() | early.organizations.keys())
    return msgspec.structs.replace(
        batch,
        observations=batch.observations + early.observations,
        organizations={name: batch.organizations.get(name, 0) + early.organizations.get(name, 0) for name in names},
    )


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


async def read(connection: asyncpg.Connection[Any], release: Release, end: int, draw: Draw) -> Reading:
    """What both arms did between the release's watermark and `end`, a horizon."""
    assert release.watermark is not None
    span = and_(_T.transaction_id >= release.watermark, _T.transaction_id < end)
    return await _read(connection, release, span, end, draw)


async def early(connection: asyncpg.Connection[Any], release: Release, end: int, draw: Draw) -> Reading:
    """What can be seen behind `end`, a horizon, already. Others may be written before it: whoever goes on must read
    it once more from there."""
    return await _read(connection, release, _T.transaction_id >= end, end, draw)


async def _read(
    connection: asyncpg.Connection[Any], release: Release, span: ColumnElement[bool], end: int, draw: Draw
) -> Reading:
    fresh = and_(
        _T.release == str(release.id),
        span,
        _T.side.in_([Side.CANDIDATE.value, Side.CONTROL.value]),
        ~UNPLACED,
    )
    taken_of = func.least(func.count(), OF_A_SESSION).label("taken")
    of_session = select(_T.organization_id, taken_of).where(fresh).group_by(_T.organization_id, _T.unit).subquery()
    by_organization = select(of_session.c.organization_id, func.sum(of_session.c.taken)).group_by(of_session.c[0])
    found = {str(row[0]): int(row[1]) for row in await fetch(connection, by_organization)}
    parts = parts_of(found, draw.most, draw.share)
    if min(parts.values(), default=1.0) < 1.0:
        seed = int.from_bytes(draw.key("volume"), "big", signed=True)
        drawn = case(*((_T.organization_id == name, int(DRAWN_OF * part)) for name, part in parts.items()), else_=0)
        fresh = and_(fresh, func.hashint8extended(_T.unit, seed).op("&")(DRAWN_OF - 1) < drawn)
    each = judged(newest_version().scalar_subquery(), fresh, extra=EXTRA)
    of = each.c
    left = or_(of.is_abandoned, of.is_superseded)
    # customers' own bad requests are refused on both arms alike; a candidate that refuses more of them is a worse one
    refused = or_(and_(of.status >= 400, of.status < 500, ~left), of.is_refused_later)
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
    numbered = select(*in_order, nth, of.organization_id, of.side, of.unit, *measured).select_from(each).subquery()
    taken = numbered.c
    rows = await fetch(
        connection,
        select(numbered).where(taken.nth <= OF_A_SESSION).order_by(taken.transaction_id, taken.request_id),
    )
    units = {row["unit"]: str(row["organization_id"]) for row in rows}
    kept, organizations = chosen(units, draw.sessions, draw.share, draw.key("share"))
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
        if row["unit"] in kept
    )
    requests = sum(found.values())
    sampled = sum(part * found[name] for name, part in parts.items()) / requests if requests else 1.0
    return Reading(observations, organizations, len(units) - len(kept), sampled, end)


async def baseline(
    connection: asyncpg.Connection[Any], release: Release, *, days: int, most: int, share: float, least: int
) -> tuple[list[float], list[float], float]:
    """Times to the first token and longest gaps, in ms, of requests that the baseline answered, of each organization
    the newest; and the share that the release holds organizations to.

    most: of all organizations together. share, least: see `share_of`. A response of one token has no gap, so gaps are
    counted, and limited to a share, by themselves: requests for single tokens do not displace them.
    """
    of = (first_at(time.time() - days * 86_400), release.model, release.baseline_pool)
    ttft_ms, held_to = await _newest(connection, "ttft_ms", of, most, share, least)
    itl_ms, _ = await _newest(connection, "itl_max_ms", of, most, share, least)
    return ttft_ms, itl_ms, held_to


async def _newest(
    connection: asyncpg.Connection[Any], column: str, of: tuple[str, str, str], most: int, share: float, least: int
) -> tuple[list[float], float]:
    counted = _BASELINE.format(time=column, columns="count(*) AS requests", grouped="GROUP BY who.id")
    counts = [row["requests"] for row in await connection.fetch(counted, *of, most)]
    held_to = share_of(counts, share, least)
    newest = _BASELINE.format(time=column, columns="time_ms", grouped="")
    return [row["time_ms"] for row in await connection.fetch(newest, *of, ceiling(counts, held_to, most))], held_to
