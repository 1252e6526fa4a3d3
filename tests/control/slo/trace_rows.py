"""Random rows of `gateway.request_traces`, and the same totals as the roll-up's, added up one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.dated_request_id import arrived_at_s, mint
from contracts.generation import Tier
from contracts.length_class import LengthClass, length_class
from contracts.objectives import Objective
from contracts.split import Side
from control.slo.judgement import TraceRow, judge
from control.slo.tables import COUNTS

ENDINGS = (
    *[(200, None)] * 8,
    (200, "superseded"),
    (200, "client_gone"),
    (499, "client_gone"),
    (200, "engine_failed"),
    (200, "engine_refused"),
    (200, "unsupported_parameter"),
    (400, "invalid_value"),
    (429, "rate_limit_exceeded"),
    (500, "internal_error"),
    (502, "engine_failed"),
    (503, "overloaded"),
    (503, "no_engine_available"),
)
OWNERS = tuple(UUID(int=number) for number in (1, 2))
Group = tuple[datetime, UUID, UUID, str, str, str, str, str]


class Trace(TraceRow, frozen=True, kw_only=True):
    request_id: str
    organization_id: UUID
    project_id: UUID | None
    tier: str | None
    model: str | None
    pool: str | None
    side: str | None
    prompt_tokens: int | None
    cached_tokens: int | None

    @property
    def arrived_at(self) -> datetime:
        at_s = arrived_at_s(self.request_id)
        assert at_s is not None
        return datetime.fromtimestamp(at_s, UTC)

    @property
    def group(self) -> Group:
        """What it is told apart by: the primary key of its row of minutes."""
        return (
            self.arrived_at.replace(second=0, microsecond=0),
            self.organization_id,
            self.project_id or UUID(int=0),
            self.tier or "",
            length_class(self.prompt_tokens or 0).value,
            self.model or "",
            self.pool or "",
            self.side or "baseline",
        )


def trace(choose: random.Random, arrived_at: datetime) -> Trace:
    """Any request: served, failed or refused, measured or not, at the very edge of an objective or far from it."""
    status, error_code = choose.choice(ENDINGS)
    ran = status == 200 or choose.random() < 0.3
    total_ms = choose.choice((200.0, 700.0, 700.001, choose.uniform(1, 9_000)))
    measured = ran and choose.random() < 0.85
    over_share = choose.choice((None, False, True)) if error_code == "overloaded" else None
    return Trace(
        over_share=over_share,
        service_class=choose.choice((None, "offline", "standard", "interactive")),
        request_id=mint(arrived_at.timestamp()),
        organization_id=choose.choice(OWNERS),
        project_id=choose.choice((None, UUID(int=7), UUID(int=8))),
        tier=choose.choice((*Tier, None)),
        model=choose.choice(("small", "large", None)),
        pool=choose.choice(("one", "two")) if ran else None,
        side=choose.choice((*Side, None)),
        status=status,
        error_code=error_code,
        total_ms=total_ms,
        ttft_ms=choose.choice((200.0, 699.999, 700.0, 700.001, choose.uniform(1, 5_000))) if measured else None,
        tpot_ms=choose.choice((None, 24.9, 25.0, 40.0, 40.001, choose.uniform(1, 90))) if measured else None,
        itl_max_ms=choose.choice((None, 99.0, 100.0, 100.001, choose.uniform(1, 900))) if measured else None,
        prompt_tokens=choose.choice((None, 0, 4_095, 4_096, 16_383, 16_384, choose.randrange(60_000))),
        cached_tokens=choose.choice((None, 0, choose.randrange(2_000))),
        completion_tokens=choose.choice((None, 0, choose.randrange(900))) if ran else None,
    )


async def write(connection: asyncpg.Connection[Any], rows: Iterable[Trace]) -> None:
    columns = Trace.__struct_fields__
    values = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await connection.executemany(
        f"INSERT INTO gateway.request_traces ({', '.join(columns)}, phases_ms) VALUES ({values}, '{{}}')",
        [msgspec.structs.astuple(each) for each in rows],
    )


def naive(
    rows: Iterable[Trace], objectives: Mapping[tuple[Tier, LengthClass], Objective]
) -> dict[Group, dict[str, int]]:
    totals: dict[Group, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for each in rows:
        if each.tier is None:
            continue
        length = length_class(each.prompt_tokens or 0)
        found = judge(each, objectives.get((Tier(each.tier), length)))
        of = totals[each.group]
        gone_early = each.error_code == "client_gone" and (each.ttft_ms is None or each.status != 200)
        for name, holds in (
            ("requests", True),
            ("counted", found.counted),
            ("failed", each.status >= 500 or (each.status, each.error_code) == (200, "engine_failed")),
            ("shed", each.error_code == "overloaded"),
            ("limited", each.status == 429),
            ("abandoned", gone_early),
            ("superseded", each.error_code == "superseded"),
            ("good", found.good),
            ("ttft_kept", found.ttft_kept),
            ("tpot_kept", found.tpot_kept),
            ("gap_kept", found.gap_kept),
            ("over_share", found.over_share),
        ):
            of[name] += holds
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            of[name] += getattr(each, name) or 0
        of["good_tokens"] += (each.completion_tokens or 0) if found.good else 0
    return dict(totals)


async def stored(connection: asyncpg.Connection[Any]) -> dict[Group, dict[str, int]]:
    rows = await connection.fetch("SELECT * FROM gateway.slo_minutes")
    return {
        (
            row["minute"],
            row["organization_id"],
            row["project_id"],
            row["tier"],
            row["length"],
            row["model"],
            row["pool"],
            row["side"],
        ): {name: row[name] for name in COUNTS}
        for row in rows
    }
