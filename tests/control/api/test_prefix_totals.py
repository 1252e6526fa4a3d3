"""Sums of the prefix contract's rows, however they are cut."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from tests.control.api.people import People

GROUPS = ("model", "endpoint", "template", "cause", "part")
SUMMED = ("requests", "prompt_tokens", "reusable_tokens", "cached_tokens")
ROW = """
INSERT INTO gateway.prefix_shares VALUES ($1, $2, $3, 'chat', $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING
"""


def added(rows: list[dict[str, Any]], by: tuple[str, ...]) -> dict[tuple[Any, ...], list[int]]:
    sums: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in SUMMED}
    for row in rows:
        for name in SUMMED:
            sums[name][tuple(row[each] for each in by)] += row[name]
    return {key: [sums[name][key] for name in SUMMED] for key in sums["requests"]}


async def test_totals_are_the_sums_of_the_contracts_rows(people: People) -> None:
    organization = people.organizations["ours"]
    choose = random.Random(3)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for _ in range(300):
        await people.database.execute(
            ROW, organization, hour - choose.randrange(30) * timedelta(hours=1), choose.choice("mn"),
            choose.choice("abc"),
            choose.choice(("date", "first", "whole")), choose.choice(("", "system")), choose.randint(1, 9),
            choose.randint(500, 999), choose.randint(100, 400), choose.randint(0, 99),
        )  # fmt: skip
    viewer = await people.owner()
    base = f"/organizations/{organization}"
    for narrowed in ("", "&model=m", "&template=a", f"&start={hour - timedelta(hours=9):%Y-%m-%dT%H:%M:%SZ}"):
        rows = await viewer.pages(f"{base}/prefix-contract?limit=100{narrowed}")
        assert rows
        for count in (0, 1, 2, 5):
            for by in combinations(GROUPS, count):
                groups = "".join(f"&group_by={each}" for each in by)
                whole = await viewer.pages(f"{base}/prefix-totals?bucket=all&limit=7{groups}{narrowed}")
                assert added(whole, by) == added(rows, by)
                assert len(whole) == len(added(rows, by))
        hours = await viewer.pages(f"{base}/prefix-totals?limit=5000&group_by=cause{narrowed}")
        assert added(hours, ("hour", "cause")) == added(rows, ("hour", "cause"))
        assert [each["hour"] for each in hours] == sorted((each["hour"] for each in hours), reverse=True)
        assert {each["model"] for each in hours} == {None}
