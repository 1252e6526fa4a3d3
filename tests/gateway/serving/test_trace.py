"""Traces wait for a database that does not take them, and do not fill the log meanwhile."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.errors import JournalUnavailable, NoEngine, Overloaded, ServiceError
from contracts.generation import Caller
from contracts.split import Side
from gateway.http.response import ResponseWriter
from gateway.observability.measurement import Measurement
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.request import Arrival
from gateway.serving.trace import Traces
from tests.databases import as_owner
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import CHAT, harness

ID = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
async def owner(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    yield owner
    await owner.close()


@pytest.fixture
def traces(pool: asyncpg.Pool[Any]) -> Traces:
    """Written when they are stopped."""
    return Traces(pool, GatewayMetrics(CollectorRegistry()), flush_s=600)


async def test_what_was_measured_is_in_the_row_as_it_was(traces: Traces, owner: asyncpg.Connection[Any]) -> None:
    found = Measurement(
        pool="p", replica_id="p-0", canary=True, side=Side.CANDIDATE, release=ID, unit=2**63 - 1, stream=True,
        attempts=2, prompt_tokens=5_000, cached_tokens=4_096, completion_tokens=7, ttft_ms=81.25, tpot_ms=9.5,
        itl_max_ms=140.125, gaps_over_100ms=1, client_stall_ms=3.5, engine_queue_ms=11.0, engine_prefill_ms=60.5,
        engine_grammar_ms=2.25, retractions=1,
    )  # fmt: skip
    async with harness() as platform:
        request = await platform.request()
        request.caller, request.measurement = Caller(ID, ID, ID), found
        request.headers = {b"x-claude-code-session-id": b"s-1", b"x-claude-code-agent-id": b"a-1"}
        traces.ended(request, ResponseWriter(Client().connection, CHAT, request.request_id))
    refused = Arrival(CHAT, {b"x-session-id": b"s-2", b"x-parent-session-id": b"s-1"})
    traces.refused(refused, Caller(ID, ID, ID), 401, JournalUnavailable("no room"))
    await traces.stop()
    sessions = await owner.fetch(
        "SELECT session, session_agent, session_parent FROM gateway.request_traces ORDER BY session"
    )
    assert [tuple(row) for row in sessions] == [("s-1", "a-1", None), ("s-2", None, "s-1")]
    columns = ", ".join(Measurement.__struct_fields__)
    rows = await owner.fetch(f"SELECT {columns} FROM gateway.request_traces ORDER BY session")
    assert [msgspec.convert(dict(row), Measurement) for row in rows] == [found, Measurement()]


@pytest.mark.parametrize(
    ("error", "told"),
    [(Overloaded("Full."), False), (Overloaded("Full."), True), (NoEngine("None."), None)],
)
async def test_whose_doing_a_refusal_was_is_in_the_row(
    error: ServiceError, told: bool | None, traces: Traces, owner: asyncpg.Connection[Any]
) -> None:
    if isinstance(error, Overloaded):
        error.over_share = bool(told)
    async with harness() as platform:
        request = await platform.request()
        request.caller = Caller(ID, ID, ID)
        response = ResponseWriter(Client().connection, CHAT, request.request_id)
        response.error = error
        traces.ended(request, response)
    await traces.stop()
    row = await owner.fetchrow("SELECT over_share, reason FROM gateway.request_traces")
    assert (row["over_share"], row["reason"]) == (told, error.message)


async def test_a_database_that_takes_nothing_is_told_of_once_and_gets_all_later(
    traces: Traces, owner: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "gateway.serving.trace"):
        for outages in (1, 2):
            await owner.execute("ALTER TABLE gateway.request_traces RENAME TO away")
            for _ in range(3):
                traces.refused(Arrival(CHAT, {}), Caller(ID, ID, ID), 503, JournalUnavailable("no room"))
                await traces.stop()  # flushes
            assert len(caplog.records) == outages
            await owner.execute("ALTER TABLE gateway.away RENAME TO request_traces")
            await traces.stop()
            assert await owner.fetchval("SELECT count(*) FROM gateway.request_traces") == 3 * outages
