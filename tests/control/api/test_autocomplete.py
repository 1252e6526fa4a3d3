"""The report of completions over HTTP; that its numbers are right is tests/control/completions/test_rollup.py's."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from uuid import UUID

import pytest

from control.completions.rollup import roll_up
from tests.control.api.people import People
from tests.control.completions.plain_totals import COUNTS, plain_totals
from tests.gateway.autocomplete.editors import OWNERS, completions, reports, write

BEGIN, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC)
SPAN = "start=2026-03-01T00:00:00Z&end=2026-03-04T00:00:00Z"
OWNER, (PROJECT, _) = next(iter(OWNERS.items()))
PATH = f"/organizations/{OWNER}/autocomplete"


@pytest.fixture(scope="module")
async def editors(people: People, admin_postgres_url: str) -> None:
    """Three days of two organizations' completions, added up."""
    choose = random.Random(15)
    for organization_id in OWNERS:
        await people.database.execute(
            "INSERT INTO gateway.organizations (id, name) VALUES ($1, $2)",
            organization_id,
            f"editors {organization_id}",
        )
    made = completions(choose, BEGIN, END, 300)
    await write(people.database, made, reports(choose, made, 900))
    await asyncio.to_thread(roll_up, admin_postgres_url, trace_retention_days=36_500)


@pytest.mark.usefixtures("editors")
async def test_groups_filters_and_pages_are_those_of_the_query(people: People) -> None:
    operator, database = await people.operator(), people.database
    keys = ("day", "language", "client", "project_id")
    wanted = await plain_totals(database, OWNER, BEGIN, END, keys)
    groups = "".join(f"&group_by={name.removesuffix('_id')}" for name in keys)
    found = await operator.pages(f"{PATH}?{SPAN}{groups}&limit=7")
    assert len(found) == len(wanted) > 7
    for each in found:
        project_id, day = UUID(each["project_id"]), datetime.fromisoformat(each["day"]).date()
        plain = wanted[day, each["language"], each["client"], project_id]
        assert {name: each[name] for name in COUNTS} == {name: plain[name] for name in COUNTS}
    for query, narrowed in (
        ("&language=unknown", {"language": "unknown"}),
        (f"&project_id={PROJECT}&client=zed", {"project_id": PROJECT, "client": "zed"}),
        ("&language=go&model=coder", {"language": "go", "model": "coder"}),
    ):
        [told] = (await operator.get(f"{PATH}?{SPAN}{query}"))["data"]
        [plain] = (await plain_totals(database, OWNER, BEGIN, END, **narrowed)).values()
        assert {name: told[name] for name in COUNTS} == {name: plain[name] for name in COUNTS}, query
        assert [told[name] for name in keys] == [None] * 4


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("start=2026-03-02T00:00:00Z&end=2026-03-01T00:00:00Z", "end"),
        ("start=2025-01-01T00:00:00Z&end=2026-03-01T00:00:00Z", "start"),
        ("start=0001-01-01T00:00:00Z", "start"),
        ("group_by=tier", "group_by[0]"),
        ("group_by=day&cursor=abc", "cursor"),
    ],
)
@pytest.mark.usefixtures("editors")
async def test_what_cannot_be_asked_is_refused_by_name(people: People, query: str, param: str) -> None:
    answer = await (await people.operator()).ask("GET", f"{PATH}?{query}")
    assert (answer.status, answer.body["error"]["param"]) == (400, param), answer
