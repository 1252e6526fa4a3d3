"""Totals of completions equal a plain statement over the traces and reports, however often, late or out of order these
came, and whatever is asked for.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from contracts.dated_request_id import first_at, mint
from control.api.call import AdminCall
from control.completions.autocomplete import AutocompleteGroup, AutocompleteQuery, AutocompleteTotals, get_autocomplete
from control.completions.rollup import AT_ONCE, HOUR, roll_up
from storage.calendar import hour_of, midnight, week_of
from tests.control.completions.plain_totals import COUNTS, plain_totals
from tests.gateway.autocomplete.editors import OWNERS, Report, completions, reports, write

NOW = datetime(2026, 11, 18, 15, 40, 10, tzinfo=UTC)
"""A Wednesday: with days of its week before it, and with whole weeks before them."""
ACME, OTHER = OWNERS
DAY = timedelta(days=1)
TABLES = (
    "completion_hours", "detailed_completion_days", "completion_days", "project_completion_days",
    "project_completion_weeks",
)  # fmt: skip
EVERY_GROUPING = [groups for many in range(6) for groups in combinations(AutocompleteGroup, many)]
NARROWED: tuple[dict[str, Any], ...] = (
    {},
    {"language": "unknown"},
    {"project_id": OWNERS[ACME][0]},
    {"client": "zed", "model": "coder"},
    {"project_id": OWNERS[ACME][1], "language": "go"},
    {"model": "none"},
)
Totals = dict[tuple[object, ...], dict[str, Any]]
"""By the values of what is grouped by."""


class Asker:
    """All that the report needs of a call."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection

    async def require_organization(self, organization_id: UUID) -> None:
        """Everybody may ask here."""


async def rolled_up(url: str, **given: float) -> int:
    return await asyncio.to_thread(
        roll_up, url, **cast(Any, {"trace_retention_days": 30, "clock": lambda: NOW, **given})
    )


async def everything(connection: asyncpg.Connection[Any]) -> list[list[tuple[object, ...]]]:
    return [sorted(map(tuple, await connection.fetch(f"SELECT * FROM gateway.{table}"))) for table in TABLES]


async def asked(
    connection: asyncpg.Connection[Any], begin: datetime, end: datetime, groups: tuple[AutocompleteGroup, ...] = (),
    **narrowed: Any,
) -> list[AutocompleteTotals]:  # fmt: skip
    found: list[AutocompleteTotals] = []
    cursor = None
    while True:
        query = AutocompleteQuery(start=begin, end=end, group_by=list(groups), limit=60, cursor=cursor, **narrowed)
        page = await get_autocomplete(cast(AdminCall, Asker(connection)), ACME, query)
        found += page.data
        cursor = page.next_cursor
        if cursor is None:
            return found


async def expect_plain(
    connection: asyncpg.Connection[Any], begin: datetime, end: datetime, groups: tuple[AutocompleteGroup, ...] = (),
    **narrowed: Any,
) -> None:  # fmt: skip
    """The answer is the plain statement's, in the order that is promised."""
    keys = tuple("project_id" if group is AutocompleteGroup.PROJECT else group.value for group in groups)
    whole_begin, whole_end = hour_of(begin), hour_of(end + HOUR - timedelta(microseconds=1))
    wanted = await plain_totals(connection, ACME, whole_begin, whole_end, keys, **narrowed)
    found = await asked(connection, begin, end, groups, **narrowed)
    named = {tuple(getattr(each, key) for key in keys): each for each in found}
    assert len(named) == len(found)
    assert named.keys() == wanted.keys(), (groups, narrowed)
    for key, each in named.items():
        plain = wanted[key]
        assert {name: getattr(each, name) for name in COUNTS} == {name: plain[name] for name in COUNTS}, key
        latencies_ms = None if each.latency_p50_ms is None else [each.latency_p50_ms, each.latency_p95_ms]
        plain_ms = plain["latencies_ms"]
        close = plain_ms and pytest.approx(plain_ms, rel=each.percentiles_within * 1.0001)
        assert latencies_ms == close, key
        assert each.acceptance_rate == (plain["accepted"] / plain["shown"] if plain["shown"] else None)
    if keys == ("day",):
        assert [each.day for each in found] == sorted((each.day for each in found if each.day), reverse=True)
    else:
        order = [(each.day.toordinal() if each.day else 0, each.completions) for each in found]
        assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
async def test_totals_are_the_plain_statements(
    seed: int, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose = random.Random(seed)
    end = midnight(NOW.date())
    begin = end - 16 * DAY  # with a whole week, and days beside it
    made = completions(choose, begin - 2 * HOUR, end + 2 * HOUR, 600)
    told = reports(choose, made, 900)
    choose.shuffle(made)
    # reports before and after what they are about, and of hours that were added up before
    parts = ((made[:300], told[:200]), ((), told[200:500]), (made[300:], ()), ((), told[500:]))
    for some_made, some_told in parts:
        await write(connection, some_made, some_told)
        await rolled_up(fresh_postgres_url)
        await expect_plain(connection, begin, end, (AutocompleteGroup.LANGUAGE,))
    grown = [each._replace(characters=(each.characters or 0) + 2) for each in told[::3]]
    await write(connection, told=grown)
    await rolled_up(fresh_postgres_url)
    before = await everything(connection)
    for groups in EVERY_GROUPING:
        await expect_plain(connection, begin, end, groups)
    edges = (
        (begin + 5 * HOUR, end - 3 * HOUR),
        (begin + timedelta(minutes=61), end),
        (begin, end - timedelta(seconds=1)),
        (begin + 20 * HOUR, begin + 28 * HOUR),  # no whole day
        (begin + 7 * HOUR, begin + 7 * HOUR + timedelta(minutes=1)),
    )
    for narrowed in NARROWED:
        await expect_plain(connection, begin, end, (AutocompleteGroup.DAY, AutocompleteGroup.PROJECT), **narrowed)
        await expect_plain(connection, *choose.choice(edges), (AutocompleteGroup.CLIENT,), **narrowed)
        await expect_plain(connection, *choose.choice(edges), **narrowed)
    for edge in edges:
        for groups in ((), (AutocompleteGroup.PROJECT,), (AutocompleteGroup.DAY,), (AutocompleteGroup.LANGUAGE,)):
            await expect_plain(connection, *edge, groups)
    await asyncio.gather(*(rolled_up(fresh_postgres_url) for _ in range(3)))
    assert await everything(connection) == before
    await connection.execute("DELETE FROM gateway.completion_roll_up_runs")
    assert await rolled_up(fresh_postgres_url) > 100
    assert await everything(connection) == before, "redone from the beginning"


DUE = "SELECT count(*) FROM gateway.completion_due_hours"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
async def test_runs_that_end_early_go_on_where_they_ended(
    seed: int, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(seed), hour_of(NOW)
    begin = end - 4 * DAY
    made = completions(choose, begin, end, 300)
    told = reports(choose, made, 400)
    choose.shuffle(made)
    for some_made, some_told in ((made[:200], told[:100]), (made[200:], told[100:300]), ((), told[300:])):
        await write(connection, some_made, some_told)
        assert 0 < await rolled_up(fresh_postgres_url, longest_s=0) <= AT_ONCE * len(OWNERS)
        assert await connection.fetchval(DUE) > 0
    for table in ("request_traces", "completion_events"):  # nothing but what is due is left to tell them
        await connection.execute(f"UPDATE gateway.{table} SET recorded_at = recorded_at - interval '10 minutes'")
    while await connection.fetchval(DUE):
        assert 0 < await rolled_up(fresh_postgres_url, longest_s=0) <= AT_ONCE * len(OWNERS)
    for groups in EVERY_GROUPING[::4]:
        await expect_plain(connection, begin, end, groups)
    before = await everything(connection)
    await connection.execute("DELETE FROM gateway.completion_roll_up_runs")
    assert await rolled_up(fresh_postgres_url) > 50
    assert await everything(connection) == before


async def test_no_transaction_redoes_many_hours(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    end = NOW
    await write(connection, completions(random.Random(11), end - 4 * DAY, end, 500))
    assert await rolled_up(fresh_postgres_url) > 5 * AT_ONCE
    hours = "SELECT count(DISTINCT hour) AS hours FROM gateway.completion_hours GROUP BY xmin::text"
    assert {row["hours"] for row in await connection.fetch(hours)} <= set(range(AT_ONCE + 1))


async def test_reports_about_made_up_completions_are_no_work(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(12), NOW
    made = [each._replace(tier="autocomplete", status=200) for each in completions(choose, end - DAY, end, 20)]
    await write(connection, made)
    assert await rolled_up(fresh_postgres_url) > 0
    for table in ("request_traces", "completion_events"):
        await connection.execute(f"UPDATE gateway.{table} SET recorded_at = recorded_at - interval '10 minutes'")
    whose = {each.request_id: each.organization_id for each in made}
    named = [mint((end + days * DAY).timestamp()) for days in range(-20, 20_000, 100)]
    project_id = OWNERS[ACME][0]
    named += [each.request_id for each in made if each.project_id != project_id]
    await write(connection, told=[Report(one, project_id, 0, "", "view", ACME, None, None) for one in sorted(named)])
    assert OTHER in whose.values()
    assert await rolled_up(fresh_postgres_url) == 0
    late = completions(choose, end - 3 * HOUR, end, 1)[0]
    late = late._replace(organization_id=ACME, project_id=project_id, tier="autocomplete", status=200)
    await write(connection, told=[Report(late.request_id, project_id, 0, "", "view", ACME, None, None)])
    assert await rolled_up(fresh_postgres_url) == 0
    await write(connection, [late])
    assert await rolled_up(fresh_postgres_url) == 1, "a trace that comes after its report"
    await expect_plain(connection, end - 2 * DAY, end, (AutocompleteGroup.PROJECT,))


async def test_an_organization_does_not_wait_behind_many_hours_of_another(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(13), NOW
    many = [each for each in completions(choose, end - 5 * DAY, end - 2 * DAY, 300) if each.organization_id == ACME]
    await write(connection, many)
    await rolled_up(fresh_postgres_url, longest_s=0)
    (one,) = completions(choose, end - 9 * DAY, end - 8 * DAY, 1)
    one = one._replace(organization_id=OTHER, project_id=OWNERS[OTHER][0], tier="autocomplete", status=200)
    await write(connection, [one])
    await rolled_up(fresh_postgres_url, longest_s=0)
    assert await connection.fetchval(DUE) > AT_ONCE
    whose = "SELECT count(*) FROM gateway.completion_hours WHERE organization_id = $1"
    assert await connection.fetchval(whose, OTHER) == 1


async def test_rows_that_come_after_a_clock_was_set_back_are_added_up(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(7), hour_of(NOW)
    await rolled_up(fresh_postgres_url)
    await connection.execute("UPDATE gateway.completion_roll_up_runs SET started_at = started_at + interval '2 hours'")
    made = completions(choose, end - DAY, end, 50)
    await write(connection, made, reports(choose, made, 50))
    await rolled_up(fresh_postgres_url)
    await expect_plain(connection, end - DAY, end, (AutocompleteGroup.LANGUAGE,))


async def test_two_workers_at_once_and_what_comes_meanwhile(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(9), NOW
    for _ in range(4):
        made = completions(choose, end - 5 * HOUR, end, 60)
        await asyncio.gather(
            write(connection, made, reports(choose, made, 60)), *(rolled_up(fresh_postgres_url) for _ in range(2))
        )
    await rolled_up(fresh_postgres_url)
    await expect_plain(connection, end - DAY, end, (AutocompleteGroup.DAY,))
    await expect_plain(connection, end - DAY, end, (AutocompleteGroup.PROJECT, AutocompleteGroup.CLIENT))


async def test_only_hours_with_news_are_redone(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    choose, end = random.Random(4), midnight(NOW.date())
    made = completions(choose, end - DAY, end, 100)
    made = [each._replace(tier="autocomplete", status=200) for each in made]
    about = next(each for each in made if each.organization_id == ACME)
    report = Report(about.request_id, about.project_id, 0, "v1", "select_part", ACME, 1, None)
    await write(connection, made, [report])
    assert await rolled_up(fresh_postgres_url) > 20
    for table in ("request_traces", "completion_events"):
        await connection.execute(f"UPDATE gateway.{table} SET recorded_at = recorded_at - interval '10 minutes'")
    assert await rolled_up(fresh_postgres_url) == 0
    await write(connection, told=[report])
    assert await rolled_up(fresh_postgres_url) == 0, "the same again is no news"
    await write(connection, told=[report._replace(characters=2)])
    assert await rolled_up(fresh_postgres_url) == 1, "more of it was taken"
    await expect_plain(connection, end - DAY, end, (AutocompleteGroup.LANGUAGE,))
    chat = [each._replace(tier="chat") for each in completions(choose, end - DAY, end, 3)]
    await write(connection, chat)
    for _ in range(2):
        await connection.execute(
            "UPDATE gateway.completion_events SET recorded_at = recorded_at - interval '10 minutes'"
        )
        assert await rolled_up(fresh_postgres_url) == 0


async def test_hours_whose_traces_may_be_forgotten_stay_as_they_are(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(5), NOW
    begin = end - 3 * DAY
    made = completions(choose, begin, end, 200)
    await write(connection, made, reports(choose, made, 200))
    await rolled_up(fresh_postgres_url)
    oldest = first_at((hour_of(end - DAY)).timestamp())
    wanted = await plain_totals(connection, ACME, begin, end)
    await connection.execute("DELETE FROM gateway.request_traces WHERE request_id < $1", oldest)
    await write(connection, told=reports(choose, [each for each in made if each.request_id < oldest], 100))
    await rolled_up(fresh_postgres_url, trace_retention_days=1)
    (found,) = await asked(connection, begin, end)
    assert {name: getattr(found, name) for name in COUNTS} == {name: wanted[()][name] for name in COUNTS}


async def test_totals_are_forgotten_by_whole_weeks(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    choose, end = random.Random(6), NOW
    await write(connection, completions(choose, end - 20 * DAY, end, 600))
    await rolled_up(fresh_postgres_url)
    assert await rolled_up(fresh_postgres_url, retention_days=3) > 0
    oldest = week_of((NOW - 3 * DAY).date())
    for table in TABLES[1:]:
        time = "week" if table.endswith("weeks") else "day"
        assert await connection.fetchval(f"SELECT min({time}) FROM gateway.{table}") == oldest
    hours = await connection.fetch("SELECT DISTINCT hour FROM gateway.completion_hours ORDER BY 1")
    assert hours[0]["hour"] >= midnight(oldest)
    await expect_plain(connection, midnight(oldest), end, (AutocompleteGroup.DAY,))


async def test_nothing_is_nothing(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    assert await rolled_up(fresh_postgres_url, retention_days=92) == 0
    end = NOW
    (found,) = await asked(connection, end - DAY, end)
    assert (found.completions, found.acceptance_rate, found.latency_p50_ms) == (0, None, None)
    assert await asked(connection, end - DAY, end, (AutocompleteGroup.LANGUAGE,)) == []
