"""A worker on its own, where `up` has prepared nothing: it begins, or says why it cannot, and always ends when told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from control.billing.rollup import LOCK_ID
from infra.local.config import LocalConfig
from slipstream import toml
from slipstream.settings import Settings
from slipstream.worker_config import Queue, WorkerConfig, ready_file
from tests.processes import while_running
from tests.waiting import START_S, eventually_blocking

pytestmark = pytest.mark.system

STOP_S = 3.0
LEAVE_S = 30.0
"""For a machine whose processors are all busy; what hung, hung for ever."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a worker with these settings of `local`; its log is `worker.log`."""
    running: list[subprocess.Popen[bytes]] = []

    def start(**local: str) -> subprocess.Popen[bytes]:
        file = tmp_path / "settings.toml"
        settings = Settings(
            local=LocalConfig(stop_timeout_s=STOP_S, **local),  # type: ignore[arg-type]
            worker=WorkerConfig(roll_up_every_s=1.0),
        )
        file.write_text(toml.dump(settings))
        command = [sys.executable, "-m", "slipstream", "worker", "--config", str(file)]
        with (tmp_path / "worker.log").open("wb") as log:
            running.append(subprocess.Popen(command, stderr=log, stdout=log, cwd=tmp_path))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_a_worker_makes_the_folder_it_needs_and_leaves_when_told(
    start: Start, data_folder: Path, tmp_path: Path, fresh_postgres_url: str, valkey_url: str
) -> None:
    worker = start(data=str(data_folder), database_url=fresh_postgres_url, valkey_url=valkey_url)
    ready = ready_file(Settings(local=LocalConfig(data=str(data_folder))).data, Queue)
    eventually_blocking(while_running(worker, ready.exists))
    log = tmp_path / "worker.log"
    eventually_blocking(while_running(worker, lambda: b": worker ready: takes tasks of upkeep" in log.read_bytes()))
    assert [folder.stat().st_mode & 0o777 for folder in (data_folder, ready.parent)] == [0o700, 0o700]
    eventually_blocking(while_running(worker, lambda: _rolled_up(fresh_postgres_url)))  # the schedule runs
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LEAVE_S) == 0
    assert not ready.exists()


def test_a_worker_whose_servers_are_away_leaves_when_told(start: Start, data_folder: Path, tmp_path: Path) -> None:
    """Without URLs it waits for the embedded servers, which only `up` starts."""
    worker, log = start(data=str(data_folder)), tmp_path / "worker.log"
    eventually_blocking(while_running(worker, lambda: b"Cannot connect to redis" in log.read_bytes()))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LEAVE_S) == 0
    assert b"--uid" not in log.read_bytes()  # an option of Celery's command, not of ours
    assert (b"running as root" in log.read_bytes()) == (os.geteuid() == 0)


def test_a_worker_whose_valkey_refuses_to_write_waits_for_it(
    start: Start, data_folder: Path, fresh_postgres_url: str, valkey_url: str, tmp_path: Path
) -> None:
    """As one does whose disk is full. This one no longer allows the command by which a worker keeps what it took."""
    data_folder.mkdir(mode=0o700)  # a folder that is there and empty is used
    worker = start(data=str(data_folder), database_url=fresh_postgres_url, valkey_url=valkey_url)
    eventually_blocking(while_running(worker, lambda: _rolled_up(fresh_postgres_url)))
    log = tmp_path / "worker.log"
    with redis.from_url(valkey_url) as valkey:
        valkey.execute_command("ACL SETUSER", "default", "-zadd")
        try:
            eventually_blocking(while_running(worker, lambda: b"Connection to broker lost" in log.read_bytes()))
        finally:
            valkey.execute_command("ACL SETUSER", "default", "+zadd")
    before = _roll_ups(fresh_postgres_url)
    eventually_blocking(while_running(worker, lambda: _roll_ups(fresh_postgres_url) > before))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LEAVE_S) == 0


def test_a_worker_that_cannot_begin_its_work_is_a_failed_start(
    start: Start, data_folder: Path, fresh_postgres_url: str, valkey_url: str, tmp_path: Path
) -> None:
    ready = ready_file(Settings(local=LocalConfig(data=str(data_folder))).data, Queue)
    ready.parent.mkdir(parents=True)
    ready.symlink_to(data_folder / "nowhere" / "ready")
    worker = start(data=str(data_folder), database_url=fresh_postgres_url, valkey_url=valkey_url)
    assert worker.wait(START_S) == 2
    said = (tmp_path / "worker.log").read_text().splitlines()[-1]
    assert said == f"slipstream: {ready}: no such file or directory; choose another data folder with --data"


def test_a_worker_whose_task_hangs_leaves_within_its_time(
    start: Start, data_folder: Path, fresh_postgres_url: str, valkey_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        worker = start(data=str(data_folder), database_url=fresh_postgres_url, valkey_url=valkey_url)
        eventually_blocking(while_running(worker, lambda: _waits_for_a_lock(fresh_postgres_url)))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LEAVE_S) == 1
        assert "killed in the middle of its work" in (tmp_path / "worker.log").read_text()


def _rolled_up(url: str) -> bool:
    """Twice: at its start, and by its schedule."""
    return _roll_ups(url) > 1


def _roll_ups(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM gateway.usage_roll_up_runs").fetchone()
    assert row is not None
    return int(row[0])


def _waits_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchone()
    return row is not None and row[0] > 0
