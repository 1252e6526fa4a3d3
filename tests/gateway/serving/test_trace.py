"""Traces wait for a database that does not take them, and do not fill the log meanwhile."""

from __future__ import annotations

import logging

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from contracts.errors import JournalUnavailable
from contracts.generation import Caller
from gateway.db.engine import lazy_pool
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.request import Arrival
from gateway.serving.trace import Traces
from tests.database import as_owner
from tests.gateway.serving.harness import CHAT

ID = "00000000-0000-0000-0000-000000000001"


async def test_a_database_that_takes_nothing_is_told_of_once_and_gets_all_later(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    pool = await lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5)
    traces = Traces(pool, GatewayMetrics(CollectorRegistry()), flush_s=600)
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
    await pool.close()
    await owner.close()
