"""Explains a firing error-budget alert by its bad requests: their organizations, pools and missed objectives.

The burn rate counts all requests (`control.slo.present`). The reasons come from the traces of the newest minutes with
bad requests, so an alert over three busy days takes no longer to explain than one over an hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import Select, and_, case, func, select
from sqlalchemy.sql.expression import literal, literal_column

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from control.diagnosis.findings.evidence import LATE, Burning, Burnt
from control.diagnosis.window import organization_names
from control.slo.budget import WINDOWS
from control.slo.judged import judged
from control.slo.present import Present, present
from control.slo.standing import Standing
from control.slo.totals import totals
from storage.rows import fetch
from storage.tables.core import request_traces

MINUTE = timedelta(minutes=1)
MAX_MINUTES, MAX_REQUESTS = 60, 100_000
"""Limits for reading traces; the newest minute is always read."""
MAX_BURNT = 5
RECENTLY = timedelta(hours=1)
"""An alert that fires now does not explain a window that ended longer ago than this."""
LATE_FIRST_TOKEN, SLOW_TOKENS, LONG_GAP = LATE


async def read_burning(
    connection: asyncpg.Connection[Any],
    organization_id: UUID | None,
    tier: Tier | None,
    ended: datetime,
    *,
    show_pools: bool,
) -> tuple[Burning, ...]:
    """The objectives whose alerts fire, for one organization or all. ended: end of the diagnosed window. show_pools:
    whether the reader may see pools."""
    now = await present(connection, organization_id, tier=tier)
    if now.until is None or ended < now.until - RECENTLY:
        return ()
    found = [
        await _burning(connection, now, standing, organization_id, show_pools=show_pools)
        for standing in now.standings
        if standing.burning
    ]
    return tuple(sorted(found, key=lambda each: each.threshold, reverse=True))


async def _burning(
    connection: asyncpg.Connection[Any],
    now: Present,
    standing: Standing,
    organization_id: UUID | None,
    *,
    show_pools: bool,
) -> Burning:
    assert now.until is not None
    objective, pair = standing.objective, standing.burning[0]
    begin = now.until - WINDOWS[pair.long]
    begin = max(begin, now.since.get((objective.tier, objective.length), begin))
    burnt: Counter[tuple[UUID, str, str, str]] = Counter()
    for start, end in await _spans(connection, standing, organization_id, begin, now.until):
        for row in await fetch(connection, _bad_requests(now.version, standing, organization_id, start, end)):
            pool = row["pool"] if show_pools else ""
            burnt[row["organization_id"], row["model"], pool, row["what"]] += row["requests"]
    most = burnt.most_common(MAX_BURNT)
    names = await organization_names(connection, {key[0] for key, _ in most})
    count = standing.windows[pair.long]
    return Burning(
        tier=objective.tier,
        length=objective.length,
        long=pair.long,
        short=pair.short,
        threshold=pair.threshold,
        counted=count.counted,
        bad=count.counted - count.good,
        looked_at=burnt.total(),
        burnt=tuple(
            Burnt(organization=names[owner_id], model=model, pool=pool, what=what, requests=requests)
            for (owner_id, model, pool, what), requests in most
        ),
    )


async def _spans(
    connection: asyncpg.Connection[Any],
    standing: Standing,
    organization_id: UUID | None,
    begin: datetime,
    end: datetime,
) -> list[tuple[datetime, datetime]]:
    """The newest minutes with bad requests, joined into spans without gaps."""
    objective = standing.objective
    dimensions = {"tier", "length"} | ({"organization_id"} if organization_id else set())
    rows = totals((begin, end), dimensions, by_minute=True).c
    bad = func.sum(rows.counted - rows.good - (rows.over_share if organization_id is None else 0)).filter(
        rows.tier == objective.tier.value, rows.length == objective.length.value
    )
    statement = select(rows.at, func.sum(rows.requests).label("requests")).group_by(rows.at).having(bad > 0)
    if organization_id is not None:
        statement = statement.where(rows.organization_id == organization_id)
    minutes: list[datetime] = []
    requests = 0
    for row in await fetch(connection, statement.order_by(rows.at.desc()).limit(MAX_MINUTES)):
        requests += row["requests"]
        if minutes and requests > MAX_REQUESTS:
            break
        minutes.append(row["at"])
    return _joined(minutes)


def _joined(newest_first: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    spans: list[tuple[datetime, datetime]] = []
    for minute in newest_first:
        if spans and spans[-1][0] == minute + MINUTE:
            spans[-1] = (minute, spans[-1][1])
        else:
            spans.append((minute, minute + MINUTE))
    return spans


def _bad_requests(
    version: int, standing: Standing, organization_id: UUID | None, begin: datetime, end: datetime
) -> Select[Any]:
    """Rows of organization, model, pool, missed objective, and number of requests."""
    columns = request_traces.c
    conditions = [
        columns.request_id >= first_at(begin.timestamp()),
        columns.request_id < first_at(end.timestamp()),
        columns.tier == standing.objective.tier.value,
        *([] if organization_id is None else [columns.organization_id == organization_id]),
    ]
    each = judged(literal(version), *conditions, extra=(columns.error_code,)).c
    what = case(
        (each.is_failed, func.coalesce(each.error_code, literal_column("'internal_error'"))),
        (~each.is_ttft_kept, LATE_FIRST_TOKEN),
        (~each.is_tpot_kept, SLOW_TOKENS),
        else_=LONG_GAP,
    ).label("what")
    groups = (each.organization_id, each.model, each.pool, what)
    own_excess = () if organization_id is not None else (~each.is_over_share,)
    return (
        select(*groups, func.count().label("requests"))
        .where(and_(each.length == standing.objective.length.value, each.is_counted, ~each.is_good, *own_excess))
        .group_by(*groups)
    )
