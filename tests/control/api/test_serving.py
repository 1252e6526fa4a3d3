"""What operators are told of serving equals the raw rows, by its percentiles too, whether of requests or histograms."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from control.slo.rollup import roll_up
from storage.latency_histogram import WITHIN
from tests.control.api.people import People
from tests.control.slo.trace_rows import Trace, naive, trace, write

BY_CLASS = {(each.tier, each.length): each for each in OBJECTIVES}
MEASURES = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "itl_max_ms": "itl_max_ms"}
SUMMED = ("requests", "good", "failed", "shed", "limited", "abandoned", "superseded", "prompt_tokens", "cached_tokens")
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)
"""On which only these tests have requests: what the deployment served is nobody's own."""


@pytest.fixture(scope="module")
async def rows(people: People, admin_postgres_url: str) -> AsyncIterator[list[Trace]]:
    """Of some hours of that day, written, and rolled up twice: late ones came in between."""
    choose = random.Random(5)
    made = [trace(choose, DAY + timedelta(minutes=choose.uniform(0, 170))) for _ in range(900)]
    made = [msgspec.structs.replace(each, model=each.model and f"{each.model}-served") for each in made]
    await adopt(people.database, OBJECTIVES)
    for part in (made[:600], made[600:]):
        await write(people.database, part)
        await asyncio.to_thread(roll_up, admin_postgres_url, trace_retention_days=30)
    yield made
    await people.database.execute("DELETE FROM gateway.request_traces WHERE request_id = ANY($1)", _ids(made))


def _ids(rows: list[Trace]) -> list[str]:
    return [each.request_id for each in rows]


@contextlib.asynccontextmanager
async def one_forgotten(people: People, rows: list[Trace]) -> AsyncIterator[None]:
    """As where retention has begun to delete the traces of a period that was rolled up."""
    gone = next(each for each in rows if each.tier is not None)
    set_tier = "UPDATE gateway.request_traces SET tier = $2 WHERE request_id = $1"
    await people.database.execute(set_tier, gone.request_id, None)
    yield
    await people.database.execute(set_tier, gone.request_id, gone.tier)


def asked(bucket: str, *groups: str, hours: int = 3) -> str:
    def told(at: datetime) -> str:
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    of = "".join(f"&group_by={group}" for group in groups)
    return f"/serving?start={told(DAY)}&end={told(DAY + timedelta(hours=hours))}&bucket={bucket}{of}"


def grouped(rows: list[Trace], bucket: str, groups: tuple[str, ...]) -> dict[tuple[Any, ...], list[Trace]]:
    found: dict[tuple[Any, ...], list[Trace]] = defaultdict(list)
    for each in rows:
        if each.tier is None:
            continue
        at = each.arrived_at.replace(second=0, microsecond=0)
        at = at if bucket == "minute" else at.replace(minute=0)
        told = None if bucket == "all" else at.strftime("%Y-%m-%dT%H:%M:%SZ")
        key = (getattr(each, name) or "" if name in groups else None for name in ("tier", "model", "pool"))
        found[told, *key].append(each)
    return dict(found)


def ranked(values: list[float], part: float) -> float:
    """As `percentile_disc`: the first value that so much of them do not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("bucket", ["minute", "hour", "all"])
@pytest.mark.parametrize("groups", [(), ("tier", "model", "pool")])
async def test_figures_equal_the_rows(
    whole: bool, bucket: str, groups: tuple[str, ...], people: People, rows: list[Trace]
) -> None:
    async with contextlib.nullcontext() if whole else one_forgotten(people, rows):
        told = await (await people.operator()).get(asked(bucket, *groups))
    assert told["percentiles"] == ("exact" if whole else "histogram"), (
        "percentiles of what is left are another period's"
    )
    within = told["percentiles_within"]
    assert within == (0 if whole else WITHIN)
    expected = grouped(rows, bucket, groups)
    assert {(each["at"], each["tier"], each["model"], each["pool"]) for each in told["data"]} == set(expected)
    for each in told["data"]:
        of = expected[each["at"], each["tier"], each["model"], each["pool"]]
        totals = list(naive(of, BY_CLASS).values())
        sums = {name: sum(total[name] for total in totals) for name in totals[0]}
        assert {name: each[name] for name in SUMMED} == {name: sums[name] for name in SUMMED}
        counted = sums["counted"] - sums["over_share"]
        assert (each["counted"], each["goodput"]) == (counted, sums["good"] / counted if counted else None)
        assert each["shed_share"] == sums["shed"] / len(of)
        seconds = {"minute": 60, "hour": 3_600, "all": 10_800}[bucket]
        assert each["requests_per_s"] == len(of) / seconds
        assert each["completion_tokens_per_s"] == sums["completion_tokens"] / seconds
        for name, column in MEASURES.items():
            waited_for = (row for row in of if row.service_class != "offline")
            values = [value for row in waited_for if (value := getattr(row, column)) is not None]
            if not values:
                assert each[name] is None
                continue
            assert each[name]["requests"] == len(values)
            for percentile, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                assert each[name][percentile] == pytest.approx(ranked(values, part), rel=within + 1e-9)


async def test_filters_narrow_it(people: People, rows: list[Trace]) -> None:
    operator = await people.operator()
    one = [each for each in rows if (each.tier, each.model, each.pool) == ("chat", "small-served", "one")]
    [told] = (await operator.get(f"{asked('all')}&tier=chat&model=small-served&pool=one"))["data"]
    assert told["requests"] == len(one)
    measured = [each for each in one if each.ttft_ms is not None and each.service_class != "offline"]
    assert told["ttft_ms"]["requests"] == len(measured)
    assert (await operator.get(f"{asked('all')}&model=unheard-of"))["data"] == []


async def test_what_cannot_be_told_is_refused(people: People) -> None:
    operator = await people.operator()
    for query, param in (("minute", "bucket"), ("hour", "bucket")):
        refused = await operator.ask("GET", asked(query, hours=40 * 24))
        assert (refused.status, refused.body["error"]["param"]) == (400, param)
