"""Computes a change's effect from the traces: one statistic before and after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from contracts.dated_request_id import first_at
from control.diagnosis.findings.measure import Measure
from control.diagnosis.tables import Metric, Statistic
from control.diagnosis.window import ANSWERED, MEASURED

SHARES = {Statistic.P50: 0.5, Statistic.P95: 0.95, Statistic.P99: 0.99}
NUMBERS = {
    metric: f"""
SELECT count({MEASURED[Measure(metric)]})::int AS requests,
       percentile_cont($6::float8) WITHIN GROUP (ORDER BY {MEASURED[Measure(metric)]}) AS value_ms
  {ANSWERED} AND ($5::text IS NULL OR model = $5)
"""
    for metric in Metric
}


class Number(msgspec.Struct, frozen=True):
    """A statistic of one window. value_ms: None without requests."""

    requests: int
    value_ms: float | None


class Effect(msgspec.Struct, frozen=True):
    """A statistic before and after a change. complete: whether the window after it is over."""

    before: Number
    after: Number
    complete: bool


async def effect_of(
    connection: asyncpg.Connection[Any],
    *,
    made_at: datetime,
    window_s: int,
    metric: Metric,
    statistic: Statistic,
    tier: str | None,
    model: str | None,
) -> Effect:
    """The effect over the windows before and after `made_at`, as far as they have passed."""
    window = timedelta(seconds=window_s)

    async def number(began: datetime) -> Number:
        span = (first_at(began.timestamp()), first_at((began + window).timestamp()))
        row = await connection.fetchrow(NUMBERS[metric], *span, None, tier, model, SHARES[statistic])
        return Number(row["requests"], row["value_ms"])

    now: datetime = await connection.fetchval("SELECT now()")
    return Effect(await number(made_at - window), await number(made_at), now >= made_at + window)
