"""The operator is told of everything, a tenant of what it can mend itself, by its own requests alone."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from control.api.examples import example_of
from control.diagnosis.diagnosis import DiagnosisOf
from control.diagnosis.findings.finding import Cause
from slipstream.diagnosis_report import text_of
from tests.control.api.people import People
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, TENANTS, WINDOW, rows
from tests.control.diagnosis.stored_traffic import forget, organization, store

SPAN = f"start={(BEGAN + WINDOW).isoformat().replace('+00:00', 'Z')}&end={(BEGAN + 2 * WINDOW).isoformat()[:-6]}Z"


@pytest.fixture
async def database(people: People) -> AsyncIterator[asyncpg.Connection]:
    yield people.database
    await forget(people.database)


async def traffic(database: asyncpg.Connection, cause: Cause) -> None:
    source = random.Random(31)
    await forget(database)
    await store(
        database, [*rows(source, BEGAN), *(CHANGES[cause](source, row) for row in rows(source, BEGAN + WINDOW))]
    )


async def test_the_operator_is_told_of_all_causes(people: People, database: asyncpg.Connection) -> None:
    operator = await people.operator()
    for cause in (Cause.RETRACTIONS, Cause.SLOW_REPLICA):
        await traffic(database, cause)
        answer = await operator.ask("GET", f"/diagnosis?{SPAN}")
        assert answer.status == 200, answer
        assert answer.body["primary"]["cause"] == cause
        assert answer.body["primary"]["fixes"][0]["told"].endswith(".")
        assert answer.body["numbers"][0]["ttft_objective_ms"] == 700.0


async def test_a_tenant_is_told_of_its_own_side_by_its_own_requests(
    people: People, database: asyncpg.Connection
) -> None:
    await traffic(database, Cause.SLOW_REPLICA)
    await people.database.execute(
        "UPDATE gateway.request_traces SET organization_id = $1 WHERE organization_id = $2",
        people.organizations["ours"],
        organization("bolt"),
    )
    try:
        owner = await people.owner()
        answer = await owner.ask("GET", f"/organizations/{people.organizations['ours']}/diagnosis?{SPAN}")
        assert (answer.status, answer.body["outcome"]) == (200, "nothing_found")
        [network] = [each["why"] for each in answer.body["unknown"] if each["cause"] == "network"]
        assert "run `slipstream tools audit-stream URL` where the client is" in network
        told = str(answer.body)
        assert not any(str(organization(name)) in told for name in TENANTS)
        assert "replica-" not in told
        assert 0 < answer.body["requests"] < 150
    finally:
        await people.database.execute(
            "DELETE FROM gateway.request_traces WHERE organization_id = $1 AND replica_id LIKE 'replica-%'",
            people.organizations["ours"],
        )


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("start=2026-11-02T00:00:00Z&end=2026-11-01T00:00:00Z", "end"),
        ("start=2026-11-01T00:00:00Z&end=2026-11-20T00:00:00Z", "start"),
        (f"{SPAN}&before_end=2026-11-01T23:00:00Z", "before_end"),
        (f"{SPAN}&before_start=2026-11-01T13:00:00Z", "before_end"),
        (f"{SPAN}&tier=gold", "tier"),
    ],
)
async def test_windows_that_are_none_are_refused_by_name(query: str, param: str, people: People) -> None:
    answer = await (await people.operator()).ask("GET", f"/diagnosis?{query}")
    assert (answer.status, answer.body["error"]["param"]) == (400, param), answer


def test_a_report_says_first_what_to_do_first() -> None:
    text = text_of(msgspec.convert(example_of(DiagnosisOf), DiagnosisOf))
    assert text.index("FOUND") < text.index("THEN") < text.index("explained by the first")
    assert "fix 1" in text
    assert "would not help" in text
