"""The deployment's traffic, for operators: requests, latency percentiles, shed and refused requests, cache hits.

They are sums of the roll-ups by minute and hour, which the worker keeps up to date (`slo.roll_up_every_s`). Percentiles
are those of the requests themselves if the period has few, and otherwise those of histograms; the response names which.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import asyncpg
from msgspec import Struct, field

from contracts.dated_request_id import first_at
from contracts.errors import InvalidField
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.moments import period
from control.api.schemas import LedgerMoment, ModelName, Name, Query
from control.slo.serving_rollup import MEASURED
from control.slo.standing import LAST_RUN, end_of
from control.slo.tables import COUNTS
from storage.latency_histogram import WITHIN, middle_ms
from storage.rows import CUSTOM_PLANS, fetchval

EXACT_MOST = 20_000
"""The most requests of a period for percentiles of the requests themselves."""
MAX_ROWS = 5_000
LONGEST = {"minute": timedelta(hours=12), "hour": timedelta(days=32), "day": timedelta(days=400)}
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
GROUPS = ("tier", "model", "pool")
PERCENTILES = (0.5, 0.95, 0.99)


class ServingBucket(StrEnum):
    """Length of a period (UTC)."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    ALL = "all"
    """Not at all: one total for the whole period."""


class ServingGroup(StrEnum):
    """Columns that figures are grouped by."""

    TIER = "tier"
    MODEL = "model"
    POOL = "pool"


class PercentileKind(StrEnum):
    """How percentiles were computed."""

    EXACT = "exact"
    """A value that a request had (`percentile_disc`)."""
    HISTOGRAM = "histogram"
    """The middle of a bucket, which is off by `percentiles_within` at most."""


class Percentiles(Struct, frozen=True, kw_only=True):
    """Percentiles in milliseconds, over the requests that have the value."""

    requests: int
    p50: float
    p95: float
    p99: float


class ServingFigures(Struct, frozen=True, kw_only=True):
    """Requests that arrived in one period. Fields that they are not grouped by are null, and so are shares of zero
    requests."""

    at: datetime | None
    """The start of the period; null if `bucket` is `all`."""
    tier: str | None
    model: str | None
    """Empty if the request was refused before the model was known."""
    pool: str | None
    """Empty if no engine was assigned."""
    seconds: float
    """The elapsed seconds of the period within the query. Rates are per second of this time."""
    requests: int
    """Requests of a known tier, including refused ones."""
    requests_per_s: float | None
    counted: int
    """Requests that were answered, or failed through the platform's fault, without those beyond their organization's
    share."""
    good: int
    """Counted requests that met every figure of the objective."""
    goodput: float | None
    """good / counted."""
    failed: int
    """Requests that failed through the platform's fault, including shed ones."""
    failed_share: float | None
    """A share of the requests, like the next two shares."""
    shed: int
    """Requests refused because the pool was full."""
    shed_share: float | None
    limited: int
    """Requests refused by the tenant's own limits."""
    limited_share: float | None
    abandoned: int
    """Requests whose client left before the first text."""
    superseded: int
    """Requests that were superseded because the user typed on."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that engines found in their caches."""
    cache_hit_share: float | None
    """cached_tokens / prompt_tokens."""
    completion_tokens: int
    completion_tokens_per_s: float | None
    good_tokens: int
    """Output tokens of good requests."""
    ttft_ms: Percentiles | None
    """From arrival to the first generated text."""
    tpot_ms: Percentiles | None
    """Each request's mean time per token after the first, as in the objectives. Percentiles are over requests, not over
    tokens."""
    itl_max_ms: Percentiles | None
    """Each request's longest gap between two arrivals of its tokens."""


class ServingSeries(Struct, frozen=True, kw_only=True):
    """The figures of a period, in order of time."""

    start: datetime
    """Rounded down to a whole bucket; for `all`, to a minute, or to an hour if the period exceeds 12 hours."""
    end: datetime
    """Rounded up."""
    added_up_until: datetime | None
    """The end of the last aggregated minute; null before the first roll-up."""
    percentiles: PercentileKind
    percentiles_within: float
    """Largest relative error of a percentile."""
    data: list[ServingFigures]


class ServingQuery(Query, frozen=True, kw_only=True):
    """Filters of requests. start, end: when requests arrived; by default, the last 24 hours. Minutes are available for
    at most 12 hours, hours for at most 32 days. group_by may be repeated."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    tier: Tier | None = None
    model: ModelName | None = None
    pool: Name | None = None
    bucket: ServingBucket = ServingBucket.HOUR
    group_by: list[ServingGroup] = field(default_factory=list)


class _Figures:
    """One query in SQL: both roll-ups and the traces have the columns at, tier, model and pool."""

    def __init__(self, query: ServingQuery, begin: datetime, end: datetime, length: timedelta) -> None:
        self._query = query
        self._values = (begin, end, query.tier, query.model, query.pool)
        self._ids = (first_at(begin.timestamp()), first_at(end.timestamp()))
        self._every = "minutes" if length < HOUR else "hours"
        at = "NULL::timestamptz" if query.bucket is ServingBucket.ALL else f"date_trunc('{query.bucket}', at, 'UTC')"
        columns = [f"{name if name in query.group_by else 'NULL::text'} AS {name}" for name in GROUPS]
        self._chosen = ", ".join((f"{at} AS at", *columns))
        self._where = """
            at >= $1 AND at < $2 AND ($3::text IS NULL OR tier = $3) AND ($4::text IS NULL OR model = $4)
            AND ($5::text IS NULL OR pool = $5)"""

    async def counts(self, connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
        """The counts of all groups. Raises InvalidField for more figures than a response may hold."""
        sums = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
        rows: list[asyncpg.Record] = await connection.fetch(
            f"SELECT {self._chosen}, {sums} FROM gateway.serving_{self._every} WHERE {self._where}"  # noqa: S608
            f" GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT {MAX_ROWS + 1}",
            *self._values,
        )
        if len(rows) > MAX_ROWS:
            raise InvalidField(
                f"Invalid value for 'group_by': these are more than {MAX_ROWS} figures, the limit of a "
                "response; choose a shorter period, a larger bucket, or one model.",
                param="group_by",
            )
        return rows

    async def exact(self, connection: asyncpg.Connection[Any]) -> bool:
        """Whether all of the period's requests still exist, and are few enough to read each."""
        rolled_up = await connection.fetchval(
            f"SELECT coalesce(sum(requests), 0) FROM gateway.serving_{self._every} WHERE at >= $1 AND at < $2",  # noqa: S608
            *self._values[:2],
        )
        if rolled_up > EXACT_MOST:
            return False
        existing = await connection.fetchval(
            "SELECT count(*) FROM (SELECT FROM gateway.request_traces WHERE tier IS NOT NULL"  # noqa: S608
            f" AND request_id >= $1 AND request_id < $2 LIMIT {EXACT_MOST + 1}) AS found",
            *self._ids,
        )
        return bool(rolled_up <= existing <= EXACT_MOST)

    async def of_requests(self, connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
        """Percentiles of the requests themselves: `found` has three values of each measure."""
        rows: list[asyncpg.Record] = await connection.fetch(
            f"""
            SELECT {self._chosen}, measure, count(*) AS requests,
                   percentile_disc(ARRAY[{", ".join(map(str, PERCENTILES))}]) WITHIN GROUP (ORDER BY value_ms) AS found
              FROM ({MEASURED} AND request_id >= $6 AND request_id < $7) AS measured
             WHERE {self._where} GROUP BY 1, 2, 3, 4, 5""",  # noqa: S608
            *self._values,
            *self._ids,
        )
        return rows

    async def of_histograms(self, connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
        """Percentiles of histograms: `found` has buckets."""
        found = ", ".join(f"min(bucket) FILTER (WHERE upto >= {part} * requests)" for part in PERCENTILES)
        rows: list[asyncpg.Record] = await connection.fetch(
            f"""
            WITH chosen AS MATERIALIZED (  -- so that its time is cut once for a histogram, not for each bucket
                SELECT {self._chosen}, measure, buckets, counts FROM gateway.latency_{self._every} WHERE {self._where}
            ), added AS (
                SELECT at, tier, model, pool, measure, bucket, sum(each) AS of_bucket
                  FROM chosen CROSS JOIN unnest(buckets, counts) AS histogram (bucket, each)
                 GROUP BY 1, 2, 3, 4, 5, 6
            ), ranked AS (
                SELECT at, tier, model, pool, measure, bucket, sum(of_bucket) OVER (whole ORDER BY bucket) AS upto,
                       sum(of_bucket) OVER whole AS requests
                  FROM added WINDOW whole AS (PARTITION BY at, tier, model, pool, measure)
            )
            SELECT at, tier, model, pool, measure, requests::bigint AS requests, ARRAY[{found}] AS found
              FROM ranked GROUP BY at, tier, model, pool, measure, requests""",  # noqa: S608
            *self._values,
        )
        return rows


async def get_serving(call: AdminCall, query: ServingQuery) -> ServingSeries:
    """Get the deployment's traffic, goodput, refusals, cache hits, and percentiles of TTFT and inter-token latency.

    The figures are by minute, hour or day in order of time, or for the whole period, in the requested groups.
    Percentiles come from the requests themselves if the period has at most 20,000 requests and all their traces, and
    from histograms otherwise.
    """
    begin, end, length = _period(query)
    figures = _Figures(query, begin, end, length)
    await call.connection.execute(CUSTOM_PLANS)
    last_run = await fetchval(call.connection, LAST_RUN)
    until = None if last_run is None else end_of(last_run.astimezone(UTC))
    rows = await figures.counts(call.connection)
    exact = await figures.exact(call.connection)
    found = await (figures.of_requests if exact else figures.of_histograms)(call.connection)
    percentiles = {
        (*(row[name] for name in ("at", *GROUPS)), row["measure"]): _percentiles(row, exact=exact) for row in found
    }
    return ServingSeries(
        start=begin,
        end=end,
        added_up_until=until,
        percentiles=PercentileKind.EXACT if exact else PercentileKind.HISTOGRAM,
        percentiles_within=0.0 if exact else WITHIN,
        data=[_told(row, percentiles, _seconds(row["at"], length, begin, end, until)) for row in rows],
    )


def _percentiles(row: asyncpg.Record, *, exact: bool) -> Percentiles:
    p50, p95, p99 = row["found"] if exact else map(middle_ms, row["found"])
    return Percentiles(requests=row["requests"], p50=p50, p95=p95, p99=p99)


def _told(row: asyncpg.Record, percentiles: dict[tuple[Any, ...], Percentiles], seconds: float) -> ServingFigures:
    key = tuple(row[name] for name in ("at", *GROUPS))
    counted = row["counted"] - row["over_share"]
    values = {name: row[name] for name in ServingFigures.__struct_fields__ if name in row}
    return ServingFigures(
        **{**values, "counted": counted},
        seconds=seconds,
        requests_per_s=_share(row["requests"], seconds),
        goodput=_share(row["good"], counted),
        failed_share=_share(row["failed"], row["requests"]),
        shed_share=_share(row["shed"], row["requests"]),
        limited_share=_share(row["limited"], row["requests"]),
        cache_hit_share=_share(row["cached_tokens"], row["prompt_tokens"]),
        completion_tokens_per_s=_share(row["completion_tokens"], seconds),
        ttft_ms=percentiles.get((*key, "ttft")),
        tpot_ms=percentiles.get((*key, "tpot")),
        itl_max_ms=percentiles.get((*key, "gap")),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _seconds(at: datetime | None, length: timedelta, begin: datetime, end: datetime, until: datetime | None) -> float:
    since, past = (begin, end) if at is None else (max(at, begin), min(at + length, end))
    return max(0.0, (min(past, until or past) - since).total_seconds())


def _length(bucket: ServingBucket, period: timedelta) -> timedelta:
    """The length of a bucket; for `all`, that of the roll-up from which it is added up."""
    if bucket is ServingBucket.ALL:
        bucket = ServingBucket.MINUTE if period <= LONGEST["minute"] else ServingBucket.HOUR
    return timedelta(**{f"{bucket.value}s": 1})


def _period(query: ServingQuery) -> tuple[datetime, datetime, timedelta]:
    """The period in UTC, in whole buckets, and a bucket's length. Raises InvalidField."""
    begin, end = period(query.start, query.end, timedelta(days=1))
    longest = LONGEST.get(query.bucket)
    if longest is not None and end - begin > longest:
        raise InvalidField(
            f"Invalid value for 'bucket': a {query.bucket}'s figures cover {_told_length(longest)} at most.",
            param="bucket",
        )
    length = _length(query.bucket, end - begin)
    return _floor(begin, length), _floor(end - MICROSECOND, length) + length, length


def _floor(at: datetime, length: timedelta) -> datetime:
    """The beginning of the bucket; both times are in UTC."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (at - epoch) // length * length


def _told_length(longest: timedelta) -> str:
    return f"{longest.days} days" if longest.days else f"{longest.seconds // 3600} hours"
