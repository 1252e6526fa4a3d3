"""The worker really runs: a process takes its task from Valkey and writes hourly usage to PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contracts.usage import Finish
from gateway.metering.request_id import mint
from gateway.metering.rollup import roll_up
from infra.local.config import LocalConfig
from slipstream import toml
from slipstream.settings import Settings
from slipstream.worker import broker_url
from slipstream.worker_config import WorkerConfig
from tests.database import as_owner

HOUR = datetime(2026, 3, 1, 14, tzinfo=UTC)
TENANT = (uuid.uuid4(), uuid.uuid4(), uuid.uuid4())
INSERT = """
INSERT INTO gateway.usage_events
       (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, stream,
        prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, phases_ms,
        requested_at, opened_at, closed_at, recorded_at, gateway_id)
VALUES ($1, 0, $2, $3, $4, 'm', 'chat', '/v1/chat/completions', true,
        10, 4, $5, 0, 'exact', $9, $6, '{}', $7, $7, $7, $8, 'g')
"""


@pytest.fixture
async def database(fresh_postgres_url: str) -> AsyncIterator[tuple[str, asyncpg.Connection[Any]]]:
    connection = await asyncpg.connect(fresh_postgres_url)
    yield fresh_postgres_url, connection
    await connection.close()


async def _use(connection: asyncpg.Connection[Any], closed_at: datetime, tokens: int, *, billed: bool = True) -> None:
    await connection.execute("SELECT gateway.ensure_usage_day($1)", closed_at.date())
    await connection.execute(
        INSERT, mint(closed_at.timestamp()), *TENANT, tokens, billed, closed_at, datetime.now(UTC), Finish.COMPLETE
    )


async def _hours(connection: asyncpg.Connection[Any]) -> list[tuple[datetime, int, int, int]]:
    rows = await connection.fetch(
        "SELECT hour, requests, prompt_tokens, completion_tokens FROM gateway.usage_hourly ORDER BY hour"
    )
    return [tuple(row) for row in rows]


async def test_hours_hold_what_was_billed_in_them(database: tuple[str, asyncpg.Connection[Any]]) -> None:
    url, connection = database
    await _use(connection, HOUR, 5)
    await _use(connection, HOUR + timedelta(minutes=59, seconds=59), 7)
    await _use(connection, HOUR + timedelta(minutes=30), 1000, billed=False)
    await _use(connection, HOUR + timedelta(hours=1), 11)
    assert roll_up(url) == 2
    assert await _hours(connection) == [(HOUR, 2, 20, 12), (HOUR + timedelta(hours=1), 1, 10, 11)]


async def test_running_again_changes_nothing(database: tuple[str, asyncpg.Connection[Any]]) -> None:
    url, connection = database
    await _use(connection, HOUR, 5)
    roll_up(url)
    await asyncio.gather(*(asyncio.to_thread(roll_up, url) for _ in range(4)))
    assert await _hours(connection) == [(HOUR, 1, 10, 5)]


async def test_rows_that_arrive_late_are_still_counted(database: tuple[str, asyncpg.Connection[Any]]) -> None:
    url, connection = database
    await _use(connection, HOUR + timedelta(days=2), 1)
    roll_up(url)
    await _use(connection, HOUR, 3)
    roll_up(url)
    assert await _hours(connection) == [(HOUR, 1, 10, 3), (HOUR + timedelta(days=2), 1, 10, 1)]


async def test_hours_are_utc_whatever_the_session_thinks(database: tuple[str, asyncpg.Connection[Any]]) -> None:
    url, connection = database
    owner = await asyncpg.connect(as_owner(url))
    await owner.execute(f"ALTER DATABASE {url.partition('@/')[2].partition('?')[0]} SET timezone = 'Asia/Kolkata'")
    await owner.close()
    await _use(connection, HOUR + timedelta(minutes=45), 3)
    roll_up(url)
    assert [row[0] for row in await _hours(connection)] == [HOUR]


def test_broker_urls() -> None:
    assert broker_url("unix:///run/v.sock") == "redis+socket:///run/v.sock"
    assert broker_url("redis://h:6379/0") == "redis://h:6379/0"


@pytest.fixture
def worker(data_folder: Path, fresh_postgres_url: str, valkey_url: str) -> Iterator[subprocess.Popen[bytes]]:
    data_folder.mkdir()
    file = data_folder / "settings.toml"
    local = LocalConfig(data=str(data_folder), database_url=fresh_postgres_url, valkey_url=valkey_url)
    file.write_text(toml.dump(Settings(local=local, worker=WorkerConfig(rollup_every_s=1.0))))
    (data_folder / "run").mkdir(mode=0o700)
    with (data_folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "slipstream", "worker", "--config", file], stderr=log, stdout=log, cwd=data_folder
        )
    yield process
    process.kill()
    process.wait()


async def test_the_worker_process_rolls_up_again_and_again_and_leaves_nothing_behind(
    worker: subprocess.Popen[bytes], data_folder: Path, database: tuple[str, asyncpg.Connection[Any]]
) -> None:
    _, connection = database

    async def until(expected: list[tuple[datetime, int, int, int]]) -> None:
        async with asyncio.timeout(60):
            while await _hours(connection) != expected:
                assert worker.poll() is None
                await asyncio.sleep(0.1)

    await _use(connection, HOUR, 5)
    await until([(HOUR, 1, 10, 5)])  # the run at its start
    await _use(connection, HOUR, 6)
    await until([(HOUR, 2, 20, 11)])  # a scheduled one
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 30) == 0
    assert sorted(await asyncio.to_thread(os.listdir, data_folder)) == ["run", "settings.toml", "worker.log"]
