"""What the admin API tells of objectives equals the raw rows to the request and the token, and keeps tenants apart."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from contracts.desired_state import Pool, Replica
from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES
from contracts.service_class import ServiceClass
from control.slo.adoption import adopt
from control.slo.budget import WINDOWS
from control.slo.rollup import roll_up
from control.slo.standing import end_of
from control.slo.tables import COUNTS
from gateway.desired import document
from storage.roles import Role
from tests.control.api.people import People
from tests.control.slo.trace_rows import Group, Trace, naive, trace, write

BY_CLASS = {(each.tier, each.length): each for each in OBJECTIVES}
FIELDS = ("at", "organization_id", "project_id", "tier", "length", "model", "pool", "side")
"""Of a group, in its order."""


class Traffic(msgspec.Struct):
    rows: list[Trace]
    projects: dict[UUID, UUID]
    """The organization's, by its id."""

    def totals(self, *organizations: UUID) -> dict[Group, dict[str, int]]:
        return naive([each for each in self.rows if each.organization_id in organizations], BY_CLASS)


@pytest.fixture(scope="module")
async def traffic(people: People, admin_postgres_url: str) -> Traffic:
    choose, now = random.Random(3), datetime.now(UTC)
    projects = {people.organizations[name]: uuid4() for name in ("ours", "theirs")}
    rows = []
    for _ in range(600):
        owner = choose.choice(list(projects))
        ago = timedelta(seconds=choose.choice((choose.uniform(0, 900), choose.uniform(0, 86_000))))
        changes = {"organization_id": owner, "project_id": projects[owner]}
        rows.append(msgspec.structs.replace(trace(choose, now - ago), **changes))
    await adopt(people.database, OBJECTIVES)
    await write(people.database, rows)
    await asyncio.to_thread(roll_up, admin_postgres_url, trace_retention_days=30)
    return Traffic(rows, projects)


def as_told(group: Group, wanted: set[str], seconds: int | None) -> tuple[Any, ...]:
    """A group as an answer has it. seconds: of a bucket; None: no time."""
    minute, *others = group
    at_s = int(minute.timestamp())
    at = None if seconds is None else datetime.fromtimestamp(at_s - at_s % seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    values = tuple(map(str, others))
    return (at, *(value if name in wanted else None for name, value in zip(FIELDS[1:], values, strict=True)))


@pytest.mark.parametrize("bucket", ["minute", "hour", "day", "all"])
async def test_series_equal_the_rows(bucket: str, people: People, traffic: Traffic) -> None:
    seconds = {"minute": 60, "hour": 3_600, "day": 86_400, "all": None}[bucket]
    viewer, ours = await people.as_(Role.VIEWER), people.organizations["ours"]
    for organization_groups, wanted in (
        ([], set()),
        (["tier", "length"], {"tier", "length"}),
        (["project", "model"], {"project_id", "model"}),
    ):
        query = f"?bucket={bucket}&project_id={traffic.projects[ours]}" + "".join(
            f"&group_by={each}" for each in organization_groups
        )
        expected: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        for group, of in traffic.totals(ours).items():
            told = expected[as_told(group, wanted, seconds)]
            for name in COUNTS:
                told[name] += of[name]
        found = await viewer.pages(f"/organizations/{ours}/slo/goodput{query}&limit=100")
        assert {tuple(each[name] for name in FIELDS): {n: each[n] for n in COUNTS} for each in found} == expected
        assert [each["at"] for each in found] == sorted((each["at"] for each in found), key=str, reverse=True)
        for each in found:
            assert each["goodput"] == (each["good"] / each["counted"] if each["counted"] else None)


async def test_the_deployment_is_told_by_organization_pool_and_side(people: People, traffic: Traffic) -> None:
    operator = await people.operator()
    expected: dict[tuple[Any, ...], int] = defaultdict(int)
    for group, of in traffic.totals(*traffic.projects).items():
        expected[as_told(group, {"organization_id", "project_id", "pool", "side"}, None)] += of["good_tokens"]
    groups = "".join(f"&group_by={each}" for each in ("organization", "project", "pool", "side"))
    found = await operator.pages(f"/slo/goodput?bucket=all{groups}&limit=100")
    ours = {str(each) for each in traffic.projects.values()}
    told = {tuple(each[name] for name in FIELDS): each["good_tokens"] for each in found if each["project_id"] in ours}
    assert told == expected
    some = next(iter(traffic.projects))
    project = traffic.projects[some]
    narrowed = f"organization_id={some}&project_id={project}&tier=chat&length=short&model=small"
    [one] = await operator.pages(f"/slo/goodput?bucket=all&{narrowed}")
    kind = ("chat", "short", "small")
    assert one["requests"] == sum(of["requests"] for group, of in traffic.totals(some).items() if group[3:6] == kind)
    assert one["organization_id"] is None, "not grouped by"


def within(totals: dict[Group, dict[str, int]], objective: Any, window: Any, end: datetime) -> list[int]:
    """Of an objective's requests in a window: counted, good, and over their share."""
    begin, kind = end - WINDOWS[window["window"]], (objective["tier"], objective["length"])
    some = [of for group, of in totals.items() if group[3:5] == kind and begin <= group[0] < end]
    return [sum(of[name] for of in some) for name in ("counted", "good", "over_share")]


async def test_standings_equal_the_rows(people: People, traffic: Traffic) -> None:
    ours = people.organizations["ours"]
    project = traffic.projects[ours]
    told = await (await people.owner()).get(f"/organizations/{ours}/slo?project_id={project}")
    ran = await people.database.fetchval("SELECT max(started_at) FROM gateway.slo_roll_up_runs")
    end = end_of(ran.astimezone(UTC))
    assert told["added_up_until"] == end.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert told["version"] == 1
    assert [(each["tier"], each["length"]) for each in told["objectives"]] == [
        (tier, length) for tier in Tier for length in LengthClass
    ]
    for each in told["objectives"]:
        for window in each["windows"]:
            counted, good, over_share = within(traffic.totals(ours), each, window, end)
            assert (window["counted"], window["good"], window["over_share"]) == (counted, good, over_share)
            if counted:
                assert window["attainment"] == good / counted
                assert window["burn_rate"] == pytest.approx((1 - good / counted) / (1 - each["target"]))
        rates = {window["window"]: window["burn_rate"] or 0 for window in each["windows"]}
        assert each["budget_left"] == pytest.approx(1 - rates["28d"])
        bad = {window["window"]: window["counted"] - window["good"] for window in each["windows"]}
        too_fast = [
            long
            for long, short, threshold in (("1h", "5m", 14.4), ("6h", "30m", 6), ("1d", "2h", 3), ("3d", "6h", 1))
            if rates[long] > threshold and rates[short] > threshold
        ]
        assert [pair["long"] for pair in each["burning"]] == [long for long in too_fast if bad[long] >= 10]
        assert [pair["long"] for pair in each["too_few"]] == [long for long in too_fast if bad[long] < 10]
    assert told["least_bad"] == 10
    assert any(each["burning"] for each in told["objectives"]), "these requests are bad enough"
    of_chat = await (await people.owner()).get(f"/organizations/{ours}/slo?project_id={project}&tier=chat")
    assert of_chat["objectives"] == [each for each in told["objectives"] if each["tier"] == "chat"]


async def test_the_deployment_is_not_charged_for_what_organizations_ask_beyond_their_share(
    people: People, traffic: Traffic
) -> None:
    operator = await people.operator()
    ran = await people.database.fetchval("SELECT max(started_at) FROM gateway.slo_roll_up_runs")
    end = end_of(ran.astimezone(UTC))
    for project in traffic.projects.values():
        rows = [each for each in traffic.rows if each.project_id == project]
        left_out = [each for each in rows if each.over_share]
        told = await operator.get(f"/slo?project_id={project}")
        totals = naive(rows, BY_CLASS)
        of_rest = naive([each for each in rows if not each.over_share], BY_CLASS)
        seen = 0
        for each in told["objectives"]:
            for window in each["windows"]:
                assert [window["counted"], window["good"]] == within(of_rest, each, window, end)[:2]
                assert window["over_share"] == within(totals, each, window, end)[2]
                if window["counted"]:
                    bad = 1 - window["good"] / window["counted"]
                    assert window["burn_rate"] == pytest.approx(bad / (1 - each["target"]))
            seen += each["windows"][-1]["over_share"]
        promised = [each for each in left_out if each.tier is not None and each.service_class != ServiceClass.OFFLINE]
        assert seen == len(promised) > 0
        [all_of_it] = await operator.pages(f"/slo/goodput?bucket=all&project_id={project}")
        assert all_of_it["counted"] == sum(of["counted"] for of in of_rest.values())
        assert all_of_it["over_share"] == seen
        assert all_of_it["goodput"] == all_of_it["good"] / all_of_it["counted"]


async def test_no_tenant_sees_others_pools_or_prices(people: People, traffic: Traffic) -> None:
    owner, ours, theirs = await people.owner(), people.organizations["ours"], people.organizations["theirs"]
    for group in ("pool", "side", "organization"):
        answer = await owner.ask("GET", f"/organizations/{ours}/slo/goodput?group_by={group}")
        assert (answer.status, answer.body["error"]["param"]) == (400, "group_by[0]")
    project = traffic.projects[theirs]
    assert await owner.pages(f"/organizations/{ours}/slo/goodput?project_id={project}") == []
    told = await owner.get(f"/organizations/{ours}/slo?project_id={project}")
    assert not any(window["counted"] for each in told["objectives"] for window in each["windows"])


async def test_a_million_good_tokens_have_a_price(people: People, traffic: Traffic) -> None:
    operator, database = await people.operator(), people.database
    replicas = (Replica("r1", "http://one:1"), Replica("r2", "http://two:1"))
    priced = document.encode((), (Pool("one", "openai", replicas, price_per_replica_hour=2.5),))
    # Every version, other tests' too, made to have been long ago: a gateway that has read them follows newer ones only.
    rows = await database.fetch("SELECT version, document::text, created_at FROM gateway.desired_states")
    write_versions = "UPDATE gateway.desired_states SET document = $1::text::jsonb, created_at = $2"
    write_version = "UPDATE gateway.desired_states SET document = $2::text::jsonb, created_at = $3 WHERE version = $1"
    await database.execute(write_versions, priced, datetime(2025, 1, 1, tzinfo=UTC))
    by_minute = (
        "SELECT minute, sum(good_tokens)::bigint FROM gateway.slo_minutes WHERE pool = 'one' GROUP BY 1 ORDER BY 1"
    )
    minutes = [(minute, count) for minute, count in await database.fetch(by_minute)]
    good = [minute for minute, count in minutes if count]
    half = good[len(good) // 2]
    try:
        past = await operator.get("/slo/pools?start=2025-01-01T10:00:00Z&end=2025-01-01T14:00:00Z")
        recent = await operator.get("/slo/pools?start=2025-01-01T00:00:00Z")
        await database.execute(write_versions, priced, half - timedelta(seconds=20))
        late = await operator.get("/slo/pools?start=2025-01-01T00:00:00Z")
    finally:
        await database.executemany(write_version, [tuple(row) for row in rows])
    assert past["data"] == [
        {
            "pool": "one",
            "replica_hours": 8.0,
            "good_tokens": 0,
            "priced_since": "2025-01-01T10:00:00Z",
            "priced_replica_hours": 8.0,
            "priced_good_tokens": 0,
            "amount_micro": 20_000_000,
            "per_million_good_tokens_micro": None,
        }
    ]
    assert past["currency"] == recent["currency"] == "USD"
    tokens = sum(count for _, count in minutes)
    [told] = [each for each in recent["data"] if each["pool"] == "one"]
    assert told["good_tokens"] == told["priced_good_tokens"] == tokens > 0
    assert told["per_million_good_tokens_micro"] == pytest.approx(told["amount_micro"] * 1e6 / tokens, rel=1e-9)
    [told] = [each for each in late["data"] if each["pool"] == "one"]
    since = sum(count for minute, count in minutes if minute >= half)
    assert datetime.fromisoformat(told["priced_since"]) == half
    assert (told["good_tokens"], told["priced_good_tokens"]) == (tokens, since)
    assert 0 < since < tokens
    assert told["per_million_good_tokens_micro"] == pytest.approx(
        told["amount_micro"] * 1e6 / since, abs=1e6 / since + 1
    )
    assert "" not in {each["pool"] for each in recent["data"]}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("bucket=minute&start=2026-11-01T00:00:00Z&end=2026-11-04T00:00:00Z", "bucket"),
        ("bucket=hour&start=2026-01-01T00:00:00Z&end=2026-11-04T00:00:00Z", "bucket"),
        ("start=2026-11-02T00:00:00Z&end=2026-11-01T00:00:00Z", "end"),
        ("bucket=all&cursor=WzFd", "cursor"),
        ("length=tiny", "length"),
    ],
)
async def test_what_cannot_be_told_is_refused_by_name(query: str, param: str, people: People) -> None:
    answer = await (await people.operator()).ask("GET", f"/slo/goodput?{query}")
    assert (answer.status, answer.body["error"]["param"]) == (400, param)
