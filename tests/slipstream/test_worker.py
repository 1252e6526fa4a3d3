"""The worker really runs: a process takes its task from Valkey and writes hourly usage to PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from contracts.dated_request_id import mint
from contracts.usage import Finish
from control.api.config import AdminConfig, WebhooksConfig
from control.api.sealed import seal
from control.billing.rollup import roll_up
from control.billing.tasks import ROLL_UP
from control.releases.rollout.tasks import ADVANCE
from control.webhooks.delivery import use_of
from control.webhooks.outbox import EventType, emit
from control.webhooks.signature import new_secret
from infra.local.config import LocalConfig
from slipstream import toml
from slipstream.gateway_settings import GatewaySettings
from slipstream.settings import Settings
from slipstream.worker import broker_url
from slipstream.worker_config import WorkerConfig
from tests.control.api.receiver import receiver, tar_pits
from tests.databases import as_owner
from tests.deployment import free_port
from tests.processes import while_running
from tests.slipstream.deployment import run_here
from tests.waiting import GUARD_S, eventually

TAR_PITS = 20
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


async def test_a_run_that_took_long_is_rested_from(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    url = fresh_postgres_url
    await _use(connection, HOUR, 3)
    assert roll_up(url, rest=10) == 1, "the first one has nothing to rest from"
    await connection.execute(
        "UPDATE gateway.usage_roll_up_runs SET seconds = 60, started_at = now() - interval '9 min'"
    )
    assert roll_up(url, rest=10) == 0
    assert roll_up(url) == 1, "whoever asks for it has it"
    await connection.execute("DELETE FROM gateway.usage_roll_up_runs")
    await connection.execute("INSERT INTO gateway.usage_roll_up_runs VALUES (now() - interval '11 min', 60, 1)")
    assert roll_up(url, rest=10) == 1


async def test_hours_are_utc_whatever_the_session_thinks(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    url = fresh_postgres_url
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
def start(data_folder: Path, fresh_postgres_url: str, valkey_url: str) -> Iterator[Callable[..., Any]]:
    """Starts workers of one deployment."""
    data_folder.mkdir()
    file = data_folder / "settings.toml"
    local = LocalConfig(
        data=str(data_folder),
        database_url=fresh_postgres_url,
        valkey_url=valkey_url,
        stop_timeout_s=GUARD_S,  # a worker that takes nine tenths of it ends with 1
    )
    webhooks = WebhooksConfig(allow_private_addresses=True, timeout_s=60)
    gateway = GatewaySettings(admin=AdminConfig(webhooks=webhooks))
    file.write_text(toml.dump(Settings(local=local, gateway=gateway, worker=WorkerConfig(roll_up_every_s=1.0))))
    (data_folder / "run").mkdir(mode=0o700)
    running: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        with (data_folder / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "slipstream", "worker", "--config", str(file), *options]
            running.append(subprocess.Popen(command, stderr=log, stdout=log, cwd=data_folder))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


async def test_the_worker_process_rolls_up_again_and_again_and_leaves_nothing_behind(
    start: Callable[..., Any], data_folder: Path, connection: asyncpg.Connection[Any]
) -> None:
    metrics_port = free_port()
    worker = start("--metrics-port", str(metrics_port))
    await _use(connection, HOUR, 5)
    await _until_hours(connection, worker, [(HOUR, 1, 10, 5)])  # the run at its start
    await _use(connection, HOUR, 6)
    await _until_hours(connection, worker, [(HOUR, 2, 20, 11)])  # a scheduled one

    def both_counted() -> bool:  # a moment after what they wrote is seen
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        found = {(s.name, s.labels.get("task"), s.labels.get("state")): s.value for f in families for s in f.samples}
        assert found["slipstream_worker_tasks_total", ROLL_UP, "FAILURE"] == 0  # so that a first one is an increase
        ended = found.get(("slipstream_worker_tasks_total", ROLL_UP, "SUCCESS"), 0)
        return ended >= 2 and found["slipstream_worker_task_seconds_count", ROLL_UP, None] >= ended

    await eventually(while_running(worker, both_counted))
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, GUARD_S) == 0
    # audit: the head of the log, to which the objectives it put in force have given a first row; pepper: of deliveries,
    # where they have begun by now
    left = set(await asyncio.to_thread(os.listdir, data_folder))
    assert left - {"pepper"} == {"audit", "run", "settings.toml", "worker.log"}


@pytest.mark.system
async def test_one_worker_for_everything_rolls_up_while_receivers_never_answer(
    start: Callable[..., Any], data_folder: Path, connection: asyncpg.Connection[Any]
) -> None:
    async with tar_pits(TAR_PITS) as pits, receiver() as server:
        await _events(connection, data_folder, [pit.url for pit in pits])
        worker = start()
        await eventually(
            while_running(
                worker, lambda: sum(len(pit.came) for pit in pits) == WebhooksConfig().organization_concurrency
            )
        )
        await _use(connection, HOUR, 5)
        await _until_hours(connection, worker, [(HOUR, 1, 10, 5)])
        await _use(connection, HOUR, 6)
        await _until_hours(connection, worker, [(HOUR, 2, 20, 11)])
        await _events(connection, data_folder, [server.url])
        await eventually(while_running(worker, lambda: len(server.came) == 1))
        assert await connection.fetchval("SELECT count(*) FROM gateway.webhook_attempts") <= 1  # the pits still hang
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, GUARD_S) == 0


@pytest.mark.system
async def test_upkeep_that_does_not_end_holds_up_no_delivery_and_no_release(
    start: Callable[..., Any], data_folder: Path, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    metrics_port = free_port()
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    async with receiver() as server, owner.transaction():
        await owner.execute("LOCK TABLE gateway.usage_hourly IN ACCESS EXCLUSIVE MODE")
        await _use(connection, HOUR, 5)
        worker = start("--metrics-port", str(metrics_port))

        async def waits_for_the_lock() -> bool:
            return bool(await owner.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        await eventually(while_running(worker, waits_for_the_lock))
        before = _advanced(metrics_port)
        await _events(connection, data_folder, [server.url])
        await eventually(while_running(worker, lambda: len(server.came) == 1 and _advanced(metrics_port) >= before + 2))
        assert await waits_for_the_lock()
    await owner.close()
    await _until_hours(connection, worker, [(HOUR, 1, 10, 5)])
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, GUARD_S) == 0


def _advanced(metrics_port: int) -> float:
    """How many looks at releases have ended well."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    wanted = {"task": ADVANCE, "state": "SUCCESS"}
    samples = [
        s for f in families for s in f.samples if s.name == "slipstream_worker_tasks_total" and s.labels == wanted
    ]
    return sum(sample.value for sample in samples)


@pytest.mark.system
async def test_each_queue_has_a_worker_of_its_own(
    start: Callable[..., Any], data_folder: Path, connection: asyncpg.Connection[Any]
) -> None:
    """Two of a kind do the work once; neither kind does the other's."""
    async with receiver() as server:
        await _use(connection, HOUR, 5)
        upkeep = [start("--queue", "upkeep") for _ in range(2)]
        await _until_hours(connection, upkeep[0], [(HOUR, 1, 10, 5)])
        await _events(connection, data_folder, [server.url])
        await _use(connection, HOUR, 6)
        await _until_hours(connection, upkeep[0], [(HOUR, 2, 20, 11)])
        assert server.came == []
        for worker in upkeep:
            await eventually(partial(_handles_sigterm, worker.pid))  # the second one may still load
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, GUARD_S) == 0
        webhooks = [start("--queue", "webhooks") for _ in range(2)]
        await eventually(while_running(webhooks[0], lambda: len(server.came) == 1))
        await _use(connection, HOUR, 7)
        await _events(connection, data_folder, [server.url])
        await eventually(while_running(webhooks[0], lambda: len(server.came) == 2))
        assert await _hours(connection) == [(HOUR, 2, 20, 11)]
        for worker in webhooks:
            await eventually(partial(_handles_sigterm, worker.pid))
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, GUARD_S) == 0
    assert len({came.headers["webhook-id"] for came in server.came}) == 2


def test_an_unknown_queue_is_refused_by_name() -> None:
    refused = run_here("worker", "--queue", "nothing")
    assert refused.returncode == 2
    assert "'upkeep', 'webhooks', 'releases', 'evals'" in refused.stderr


def _handles_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


async def _events(connection: asyncpg.Connection[Any], data: Path, urls: list[str]) -> None:
    """An organization of its own with a webhook for each URL, and one event for all of them."""
    pepper = Settings(local=LocalConfig(data=str(data))).pepper
    organization = await connection.fetchval(
        "INSERT INTO gateway.organizations (name) VALUES ('customer') RETURNING id"
    )
    for url in urls:
        webhook = uuid.uuid4()
        await connection.execute(
            "INSERT INTO gateway.webhooks (id, organization_id, url, description, secret) VALUES ($1, $2, $3, '', $4)",
            webhook,
            organization,
            url,
            seal(pepper, use_of(webhook), new_secret().encode()),
        )
    await emit(connection, organization, EventType.BUDGET_EXHAUSTED, {})


async def _until_hours(
    connection: asyncpg.Connection[Any],
    worker: subprocess.Popen[bytes],
    expected: list[tuple[datetime, int, int, int]],
) -> None:
    async def rolled_up() -> bool:
        return await _hours(connection) == expected

    await eventually(while_running(worker, rolled_up))
