"""The worker's task from settings to Prometheus, and windows against a sum over single minutes."""

from __future__ import annotations

import asyncio
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import Objective
from control.slo.adoption import unchanged_since
from control.slo.budget import PAIRS, WINDOWS, Count
from control.slo.judgement import judge
from control.slo.metrics import SloMetrics
from control.slo.objectives import SloConfig
from control.slo.serving_rollup import redo_hours, redo_minutes
from control.slo.standing import counts_of, end_of, for_deployment, standings, window_counts
from control.slo.tasks import SloUpkeep
from storage import worker_connection
from storage.rows import fetch
from tests.control.slo.trace_rows import Trace, write

CHAT = Objective(Tier.CHAT, LengthClass.SHORT, 400.0, target=0.9)
CODE = Objective(Tier.AUTOCOMPLETE, LengthClass.SHORT, 200.0)
MINUTE = """
INSERT INTO gateway.slo_minutes
SELECT $1, '00000000-0000-0000-0000-000000000003', gen_random_uuid(),
       'chat', 'short', '', '', false, 1, $2, $2, 0, 0, 0, 0, 0, $3, 0, 0, 0,
       0, 0, 0, 0, $4
"""


def served(ttft_ms: float) -> Trace:
    return Trace(
        request_id=mint(),
        organization_id=UUID(int=1),
        project_id=UUID(int=2),
        tier="chat",
        model="small",
        pool="one",
        side="baseline",
        prompt_tokens=100,
        cached_tokens=0,
        completion_tokens=10,
        status=200,
        total_ms=900.0,
        ttft_ms=ttft_ms,
    )


async def test_settings_come_into_force_and_prometheus_is_told(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    registry = CollectorRegistry()

    def told(name: str, tier: str = "chat", **labels: str) -> float | None:
        return registry.get_sample_value(f"slipstream_slo_{name}", {"tier": tier, "length": "short", **labels})

    upkeep = SloUpkeep(fresh_postgres_url, SloConfig((CHAT, CODE)), SloMetrics(registry), trace_retention_days=30)
    await asyncio.to_thread(upkeep.run)
    assert (told("target"), told("burn_rate", window="5m")) == (0.9, 0.0)
    assert math.isnan(told("attainment") or 0)
    await write(connection, [served(100), served(400), served(401), served(5_000)])
    assert await asyncio.to_thread(upkeep.run) >= 1
    assert told("attainment") == 0.5
    assert told("burn_rate", window="5m") == told("burn_rate", window="28d") == pytest.approx(5)
    assert told("budget_left") == pytest.approx(-4)
    assert math.isnan(told("budget_left", tier="autocomplete") or 0)
    assert told("burning", window="1h") == 0.0, "two bad requests are no pattern"
    await write(connection, [served(5_000) for _ in range(8)])
    await asyncio.to_thread(upkeep.run)
    assert {window: told("burning", window=window) for window in ("1h", "6h", "1d")} == {"1h": 0, "6h": 1, "1d": 1}
    later = SloUpkeep(fresh_postgres_url, SloConfig((CHAT,)), SloMetrics(CollectorRegistry()), trace_retention_days=30)
    await asyncio.to_thread(later.run)
    await asyncio.to_thread(upkeep.run)
    assert await connection.fetchval("SELECT max(version) FROM gateway.slo_objectives") == 2, "no taking turns"
    assert told("target", tier="autocomplete") is None, "what is in force is told, whoever set it"


def shed(organization_id: int, over_share: bool | None) -> Trace:
    return msgspec.structs.replace(
        served(0), organization_id=UUID(int=organization_id), status=503, error_code="overloaded", pool=None,
        ttft_ms=None, completion_tokens=None, over_share=over_share,
    )  # fmt: skip


@pytest.mark.parametrize(("over_share", "burns"), [(True, False), (False, True), (None, True)])
async def test_a_noisy_organization_cannot_burn_the_budget_and_a_deployment_that_is_too_small_does(
    over_share: bool | None, burns: bool, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    registry = CollectorRegistry()
    upkeep = SloUpkeep(fresh_postgres_url, SloConfig((CHAT,)), SloMetrics(registry), trace_retention_days=30)
    rows = [*(served(100) for _ in range(95)), *(served(5_000) for _ in range(5))]
    rows += [shed(7, over_share) for _ in range(300)]
    await asyncio.to_thread(upkeep.run)
    await write(connection, rows)
    await asyncio.to_thread(upkeep.run)
    of_chat = {"tier": "chat", "length": "short"}
    counted = [each for each in rows if not each.over_share]
    good = sum(judge(each, CHAT).good for each in rows) / len(counted)
    assert registry.get_sample_value("slipstream_slo_attainment", of_chat) == pytest.approx(good)
    assert registry.get_sample_value("slipstream_slo_budget_left", of_chat) == pytest.approx(1 - (1 - good) / 0.1)
    burning = registry.get_sample_value("slipstream_slo_burning", {**of_chat, "window": "6h"})
    assert burning == burns, "the same refusals, of one that asks for too much and of everybody"
    left_out = registry.get_sample_value("slipstream_slo_over_share_requests", of_chat)
    assert left_out == len(rows) - len(counted)
    last_run = await connection.fetchval("SELECT max(started_at) FROM gateway.slo_roll_up_runs")
    own = counts_of(await fetch(connection, window_counts(end_of(last_run), {}, organization_id=UUID(int=7))))
    [standing] = standings((CHAT,), own)
    assert standing.budget == Count(300, 0, 300 if over_share else 0), "its own view counts them all, and says which"
    assert standing.burning


def test_an_objective_that_is_gone_is_told_no_more() -> None:
    registry = CollectorRegistry()
    metrics, now = SloMetrics(registry), datetime.now(UTC)
    metrics.tell(standings((CHAT, CODE), {}), now)
    metrics.tell(standings((CHAT,), {}), now)
    found = [sample for family in registry.collect() for sample in family.samples if "tier" in sample.labels]
    assert len(found) == 4 + len(WINDOWS) + len(PAIRS)
    assert {sample.labels["tier"] for sample in found} == {"chat"}


@pytest.mark.parametrize("past_the_hour", [0, 17])
async def test_windows_equal_a_sum_over_minutes(
    past_the_hour: int, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(1), datetime.now(UTC).replace(minute=past_the_hour, second=0, microsecond=0)
    edges = [end - window + timedelta(minutes=off) for window in WINDOWS.values() for off in (-1, 0, 1)]
    anywhere = [end - timedelta(minutes=choose.randrange(30 * 24 * 60)) for _ in range(200)]
    minutes = []
    for minute in (*edges, *anywhere, end, end - timedelta(minutes=1)):
        counted = choose.randrange(50)
        good = choose.randrange(counted + 1)
        minutes.append((minute, counted, good, choose.randrange(counted - good + 1)))
    await connection.executemany(MINUTE, minutes)
    with worker_connection.connect(fresh_postgres_url) as worker:
        redo_minutes(worker, min(edges) - timedelta(days=2), end + timedelta(minutes=1))
        redo_hours(worker, (minute for minute, *_ in minutes))
    for organization_id in (None, UUID(int=3)):
        nothing = window_counts(end, {(Tier.CHAT, LengthClass.SHORT): end}, organization_id=organization_id)
        assert counts_of(await fetch(connection, nothing)) == {}
        for since_minutes in (None, 3, 100, 5_000, 50_000):
            began = end - timedelta(minutes=50_000 if since_minutes is None else since_minutes)
            since = {} if since_minutes is None else {(Tier.CHAT, LengthClass.SHORT): began}
            found = counts_of(await fetch(connection, window_counts(end, since, organization_id=organization_id)))
            assert set(found) == {(Tier.CHAT, LengthClass.SHORT)}
            for name, window in WINDOWS.items():
                within = [numbers for minute, *numbers in minutes if max(end - window, began) <= minute < end]
                counted, good, over_share = (sum(column) for column in zip(*within, strict=True))
                assert found[Tier.CHAT, LengthClass.SHORT][name] == Count(counted, good, over_share), name
                left = Count(counted - over_share, good, over_share)
                assert for_deployment(found)[Tier.CHAT, LengthClass.SHORT][name] == left, name


DAY = datetime(2026, 11, 1, tzinfo=UTC)


def versions(*each: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """Rows as the database has them, the newest version first. each: by length a TTFT and a target."""
    rows = [
        {
            "version": number, "valid_from": DAY + timedelta(days=number), "tier": "chat", "length": length,
            "ttft_ms": ttft_ms, "tpot_ms": None, "itl_max_ms": None, "target": target,
        }
        for number, classes in enumerate(each, 1)
        for length, (ttft_ms, target) in classes.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["version"])


@pytest.mark.parametrize(
    ("each", "days"),
    [
        ([], None),
        ([{"short": (700, 0.9)}], None),
        ([{"short": (700, 0.9)}, {"short": (700, 0.99)}], None),
        ([{"short": (700, 0.9)}, {"short": (800, 0.9)}], 2),
        ([{"short": (700, 0.9)}, {"short": (800, 0.9)}, {"short": (800, 0.5)}], 2),
        ([{"short": (700, 0.9)}, {"short": (800, 0.9)}, {"short": (700, 0.9)}], 3),
        ([{"short": (700, 0.9)}, {"long": (700, 0.9)}, {"short": (800, 0.9)}], 3),
        ([{"long": (700, 0.9)}, {"short": (800, 0.9)}], None),
    ],
)
def test_requests_are_separated_by_the_figures_that_judged_them(
    each: list[dict[str, tuple[float, float]]], days: int | None
) -> None:
    wanted = {} if days is None else {(Tier.CHAT, LengthClass.SHORT): DAY + timedelta(days=days)}
    assert unchanged_since(versions(*each)) == wanted


async def test_changed_figures_begin_with_a_whole_budget(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    registry = CollectorRegistry()

    def told(name: str) -> float:
        found = registry.get_sample_value(f"slipstream_slo_{name}", {"tier": "chat", "length": "short"})
        return math.nan if found is None else found

    upkeep = SloUpkeep(fresh_postgres_url, SloConfig((CHAT,)), SloMetrics(registry), trace_retention_days=30)
    await asyncio.to_thread(upkeep.run)
    await write(connection, [served(5_000) for _ in range(20)])
    await asyncio.to_thread(upkeep.run)
    assert told("budget_left") == pytest.approx(-9)
    later = msgspec.structs.replace(CHAT, ttft_ms=30_000.0)
    upkeep = SloUpkeep(
        fresh_postgres_url, SloConfig((later,)), SloMetrics(registry := CollectorRegistry()), trace_retention_days=30
    )
    await asyncio.to_thread(upkeep.run)
    assert math.isnan(told("budget_left")), "the earlier verdicts are not those of the new figures"
