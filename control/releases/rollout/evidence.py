"""Reads the measurements of both arms' requests, each once, although many processes write traces late.

Every row has its writer's transaction id. Below the oldest open transaction, the horizon, the rows are complete: none
can be committed there any more. So a step takes the rows from the last step's watermark up to the horizon, in whatever
order they were written, and its transaction moves the watermark.
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
"""The number of hash values by which sessions are drawn."""
OF_A_SESSION = 50
"""The most requests of a session that one step takes: a session tosses one coin for each test, and a flood of requests
must not displace other sessions."""
_T = request_traces.c
EXTRA = (
    _T.request_id, _T.organization_id, _T.side, _T.unit, _T.status, _T.total_ms, _T.transaction_id,
    REFUSED_LATER.label("is_refused_later"),
)  # fmt: skip
_REFUSED = and_(_T.status >= 400, _T.status < 500, func.coalesce(_T.error_code, "") != CLIENT_GONE)
_BY_NOBODY = and_(_T.pool.is_(None), func.coalesce(_T.error_code, "") != ContextTooLong.code)
UNPLACED: ColumnElement[bool] = and_(_REFUSED, or_(_BY_NOBODY, _T.status == 429))
"""Requests that the gateway refused before an engine had them, or that a customer's limit refused: no arm is involved.
A prompt that is too long for every engine of an arm does count for the arm."""


# One index step finds each organization; taking the newest of each keeps one's flood from displacing the others'.
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
    """The evidence that one step consumed, in the order in which it was judged."""

    observations: tuple[Observation, ...] = ()
    slices: str = ""
    """The gate's verdict, if it came with this step."""
    worse: int = 0
    """New votes for which the candidate's answer was the worse one; `better` counts those for the candidate."""
    better: int = 0
    organizations: dict[str, int] = {}
    """Sessions among `observations` that no earlier step had, by organization."""
    copies: tuple[Copy, ...] = ()
    """Copies of requests, in the order in which they were judged."""

    @property
    def holds_something(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.observations or self.slices or self.worse or self.better or self.copies)


class Reading(msgspec.Struct, frozen=True):
    """The result of one read."""

    observations: tuple[Observation, ...]
    organizations: dict[str, int]
    """New sessions, like `Batch.organizations`."""
    left_out: int
    """Sessions beyond one organization's share."""
    sampled: float
    """The part of the sessions that was drawn."""
    watermark: int
    """Where the next read begins."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The rules by which a look draws sessions."""

    most: int
    """The most requests of a look."""
    sessions: Sessions
    """Sessions that earlier looks took."""
    share: float
    """The part of the sessions that one organization may have."""
    secret: str
    """The secret of the release's split (`Canary.salt`)."""

    def key(self, purpose: str) -> bytes:
        """Key of the hash that draws sessions: tenants cannot compute the choice, which is independent of sides."""
        return hashlib.blake2b(self.secret.encode(), digest_size=8, person=purpose.encode()).digest()


def joined(batch: Batch, early: Reading) -> Batch:
    """The batch with the evidence that was read early."""
    names = sorted(batch.organizations.keys() | early.organizations.keys())
    return msgspec.structs.replace(
        batch,
        observations=batch.observations + early.observations,
        organizations={name: batch.organizations.get(name, 0) + early.organizations.get(name, 0) for name in names},
    )


def packed(batch: Batch) -> bytes:
    """The batch for the step's row; `unpacked` restores it exactly."""
    return zlib.compress(msgspec.msgpack.encode(batch))


def unpacked(evidence: bytes | None) -> Batch:
    """The batch of a step's row; empty if the step consumed nothing."""
    return Batch() if evidence is None else msgspec.msgpack.decode(zlib.decompress(evidence), type=Batch)


async def horizon(connection: asyncpg.Connection[Any]) -> int:
    """The transaction id below which every row is visible and none can still be committed."""
    found: int = await connection.fetchval(HORIZON)
    return found


async def read(connection: asyncpg.Connection[Any], release: Release, end: int, draw: Draw) -> Reading:
    """Read both arms' requests between the release's watermark and `end`, a horizon."""
    assert release.watermark is not None
    span = and_(_T.transaction_id >= release.watermark, _T.transaction_id < end)
    return await _read(connection, release, span, end, draw)


async def early(connection: asyncpg.Connection[Any], release: Release, end: int, draw: Draw) -> Reading:
    """Read the requests that are already visible beyond `end`, a horizon. Others may still be committed there, so a
    release that continues must read them again from `end`."""
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
    row = each.c
    left = or_(row.is_abandoned, row.is_superseded)
    # customers' own bad requests are refused on both arms alike; a candidate that refuses more of them is worse
    refused = or_(and_(row.status >= 400, row.status < 500, ~left), row.is_refused_later)
    silent = and_(row.status < 300, ~left, row.ttft_ms.is_(None))
    failed = or_(row.is_failed, refused, silent)
    # a client that left or typed on before the first text waited at least this long; an end without text came then
    waited = or_(left, and_(silent, row.completion_tokens > 0))
    ttft_ms = case((waited, func.coalesce(row.ttft_ms, row.total_ms)), else_=row.ttft_ms)
    gone = and_(left, row.ttft_ms.is_(None)).label("gone")
    good = case((row.is_counted, row.is_good), else_=null())
    in_order = (row.transaction_id, row.request_id)
    nth = func.row_number().over(partition_by=row.unit, order_by=in_order).label("nth")
    measured = (ttft_ms.label("ttft_ms"), row.itl_max_ms, failed.label("failed"), good.label("good"), gone)
    numbered = select(*in_order, nth, row.organization_id, row.side, row.unit, *measured).select_from(each).subquery()
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
    """Times to first token and longest gaps, in ms, of the newest requests that the baseline answered for each
    organization, and the largest share that the release allows an organization.

    most: over all organizations. share, least: see `share_of`. A response of one token has no gap, so gaps are counted
    and limited to a share separately: requests for single tokens do not displace them.
    """
    scope = (first_at(time.time() - days * 86_400), release.model, release.baseline_pool)
    ttft_ms, limit = await _newest(connection, "ttft_ms", scope, most, share, least)
    itl_ms, _ = await _newest(connection, "itl_max_ms", scope, most, share, least)
    return ttft_ms, itl_ms, limit


async def _newest(
    connection: asyncpg.Connection[Any], column: str, scope: tuple[str, str, str], most: int, share: float, least: int
) -> tuple[list[float], float]:
    counted = _BASELINE.format(time=column, columns="count(*) AS requests", grouped="GROUP BY who.id")
    counts = [row["requests"] for row in await connection.fetch(counted, *scope, most)]
    limit = share_of(counts, share, least)
    newest = _BASELINE.format(time=column, columns="time_ms", grouped="")
    return [row["time_ms"] for row in await connection.fetch(newest, *scope, ceiling(counts, limit, most))], limit
