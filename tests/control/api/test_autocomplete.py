"""What became of completions, as the roll-up and a plain twin add them up; nobody's reports count for somebody else."""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import arrived_at_s, mint
from control.completions.rollup import roll_up
from gateway.autocomplete.event import Event, EventKey
from gateway.autocomplete.store import EventStore
from gateway.observability.metrics import GatewayMetrics
from storage.engine import lazy_pool
from storage.latency_histogram import WITHIN
from tests.control.api.people import People
from tests.control.completions.naive_events import Completion, Report, totals

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SPAN = "start=2026-03-01T00:00:00Z&end=2026-03-04T00:00:00Z"
INSERT = """
INSERT INTO gateway.request_traces
    (request_id, organization_id, project_id, key_id, endpoint, model, tier, status, total_ms, phases_ms, client,
     language, characters, error_code)
VALUES ($1, $2, $3, $3, 'fim', $4, $5, $6, $7, '{}', $8, $9, $10, $11)
"""
COUNTED = (
    "completions", "empty", "abandoned", "superseded", "shown", "accepted", "dismissed", "characters_offered",
    "characters_kept",
)  # fmt: skip

ENDINGS = (
    (200, None),
    (200, None),
    (200, "superseded"),
    (200, "client_gone"),
    (499, "client_gone"),
    (503, "overloaded"),
)


class Editors:
    """Two organizations whose editors name each other's completions too."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.owners = [str(uuid4()), str(uuid4())]
        self.projects = {owner: [str(uuid4()), str(uuid4())] for owner in self.owners}
        self.completions = {owner: [self._completion(choose, owner) for _ in range(150)] for owner in self.owners}
        everything = [each for made in self.completions.values() for each in made]
        self.reports = {
            owner: [self._report(choose, owner, choose.choice(everything)) for _ in range(600)] for owner in self.owners
        }

    def _completion(self, choose: random.Random, owner: str) -> Completion:
        # three days are asked for; the first and the last of five are not among them
        moment = BEGIN + timedelta(seconds=choose.uniform(-86_400, 4 * 86_400))
        status, error_code = choose.choice(ENDINGS)
        return Completion(
            mint(moment.timestamp()),
            choose.choice(self.projects[owner]),
            status,
            error_code,
            choose.choice(("curl", "tabby-agent")),
            choose.choice((None, "python", "go")),
            choose.choice((None, 0, 1, 5, 40)),
            choose.uniform(5, 500),
        )

    def _report(self, choose: random.Random, owner: str, about: Completion) -> Report:
        return Report(
            about.request_id,
            choose.choice((choose.choice(self.projects[owner]), about.project_id))
            if about.project_id in self.projects[owner]
            else choose.choice(self.projects[owner]),
            choose.choice((0, 0, 0, 1)),
            choose.choice(("", "v1")),
            choose.choice(("view", "view", "select", "select_part", "dismiss")),
            choose.choice((None, None, 3, 1_000)),
        )

    async def move_in(self, people: People, url: str) -> None:
        """Everything into the database and added up: reports through the store, some of them twice."""
        async with lazy_pool(url, size=1, connect_timeout_s=5) as pool:
            store = EventStore(pool, GatewayMetrics(CollectorRegistry()), flush_s=600)
            for owner in self.owners:
                await people.database.execute(
                    "INSERT INTO gateway.organizations (id, name) VALUES ($1, $2)", UUID(owner), f"editors {owner}"
                )
                for each in self.completions[owner]:
                    for tier, request_id in (("autocomplete", each.request_id), ("chat", mint(BEGIN.timestamp()))):
                        await people.database.execute(
                            INSERT, request_id, owner, each.project_id, "m", tier, each.status, each.total_ms,
                            each.client, each.language, each.characters, each.error_code,
                        )  # fmt: skip
                for report in [*self.reports[owner], *self.reports[owner][::7]]:
                    store.add(EventKey(*report[:5]), Event(owner, report.characters))
            await store.stop()
        await asyncio.to_thread(roll_up, url, trace_retention_days=36_500)

    def expected(self, owner: str, **of: object) -> dict[str, Any]:
        """By the plain twin, of the completions of the period that have these values."""
        made = [
            each
            for each in self.completions[owner]
            if "2026-03-01" <= day_of(each) < "2026-03-04" and all(value_of(each, name) == of[name] for name in of)
        ]
        answered = [each for each in made if each.status == 200 and each.error_code != "superseded"]
        latencies = [each.total_ms for each in answered if each.characters != 0]
        found = totals(made, self.reports[owner])
        return {
            **found,
            "acceptance_rate": found["accepted"] / found["shown"] if found["shown"] else None,
            "latency_p50_ms": percentile(latencies, 50),
            "latency_p95_ms": percentile(latencies, 95),
        }


def day_of(completion: Completion) -> str:
    arrived_s = arrived_at_s(completion.request_id)
    assert arrived_s is not None
    return f"{datetime.fromtimestamp(arrived_s, UTC):%Y-%m-%d}"


def value_of(completion: Completion, name: str) -> object:
    return day_of(completion) if name == "day" else getattr(completion, name) or "unknown"


def percentile(values: list[float], percent: int) -> float | None:
    """The nearest rank."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1] if values else None


def expect(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Counts are those of the twin, latencies as close as is told."""
    assert found["percentiles_within"] == pytest.approx(WITHIN)
    for name, value in wanted.items():
        close = WITHIN * 1.0001 if name.startswith("latency") else 1e-9
        assert found[name] == (value if value is None else pytest.approx(value, rel=close)), (name, found)


@pytest.fixture(scope="module")
async def editors(people: People, admin_postgres_url: str) -> Editors:
    editors = Editors(15)
    await editors.move_in(people, admin_postgres_url)
    return editors


async def fetch(people: People, owner: str, query: str) -> list[dict[str, Any]]:
    """All items, page by page."""
    operator, items, cursor = await people.operator(), [], ""
    while True:
        page = await operator.get(f"/organizations/{owner}/autocomplete?{SPAN}{query}{cursor}")
        items += page["data"]
        if not page["has_more"]:
            return items
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.parametrize(
    "groups",
    [
        (),
        ("day",),
        ("language",),
        ("client",),
        ("project_id",),
        ("day", "language", "client"),
        ("language", "client", "project_id", "day"),
    ],
)
async def test_totals_are_the_plain_twins_however_they_are_grouped(
    people: People, editors: Editors, groups: tuple[str, ...]
) -> None:
    query = "".join(f"&group_by={name.removesuffix('_id')}" for name in groups)
    for owner in editors.owners:
        found = await fetch(people, owner, f"{query}&limit=7")
        assert found
        for each in found:
            of = {name: each[name] for name in groups}
            wanted = editors.expected(owner, **of)
            expect(each, wanted)
            assert [each[name] for name in ("day", "language", "client", "project_id") if name not in groups] == [
                None
            ] * (4 - len(groups))
        assert len({tuple(each[name] for name in groups) for each in found}) == len(found)
        whole = editors.expected(owner)
        for name in COUNTED:
            assert sum(each[name] for each in found) == whole[name]
        assert min(whole["accepted"], whole["dismissed"], whole["characters_kept"], whole["empty"]) > 0


async def test_filters_narrow(people: People, editors: Editors) -> None:
    owner = editors.owners[0]
    project = editors.projects[owner][0]
    for query, of in (
        ("&language=unknown", {"language": "unknown"}),
        (f"&project_id={project}&client=curl", {"project_id": project, "client": "curl"}),
        ("&language=go&client=tabby-agent", {"language": "go", "client": "tabby-agent"}),
    ):
        [found] = await fetch(people, owner, query)
        wanted = editors.expected(owner, **of)
        expect(found, wanted)
    [nothing] = await fetch(people, owner, "&model=none")
    assert (nothing["completions"], nothing["acceptance_rate"], nothing["latency_p50_ms"]) == (0, None, None)


async def test_somebody_elses_reports_count_for_nobody(people: People, editors: Editors) -> None:
    """Both organizations reported about each other's completions above; the twin counts a project's own alone."""
    for owner, other in (editors.owners, editors.owners[::-1]):
        foreign = {each.request_id for each in editors.completions[other]}
        assert any(report.request_id in foreign for report in editors.reports[owner])
        by_request = defaultdict(set)
        for each in editors.reports[owner]:
            by_request[each.request_id].add(each.project_id)
        assert any(len(projects) > 1 for projects in by_request.values()), "a project about its neighbour's, too"
    stranger = await people.owner()
    answer = await stranger.ask("GET", f"/organizations/{editors.owners[0]}/autocomplete")
    assert answer.status == 404


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
async def test_what_cannot_be_asked_is_refused_by_name(
    people: People, editors: Editors, query: str, param: str
) -> None:
    answer = await (await people.operator()).ask("GET", f"/organizations/{editors.owners[0]}/autocomplete?{query}")
    assert (answer.status, answer.body["error"]["param"]) == (400, param), answer
