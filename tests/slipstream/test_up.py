"""`slipstream up` on a real machine: it recovers from every kill, keeps what was committed, and refuses in one line."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psutil
import pytest
import redis

from control.audit.chain import OWNED
from control.audit.heads import FILE
from infra.local.folders import APPLICATION_ROLE, DataFolder
from tests.deployment import free_port
from tests.processes import executes
from tests.slipstream.deployment import RestartableDeployment, one_line, run
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.system

METRIC_OF = {
    "gateway": {"slipstream_requests_total"},
    "router": {"slipstream_router_gateways"},
    "worker": {"slipstream_worker_tasks_total"},
}
EXPECTED = {"router", "valkey", "postgres", "worker", "gateway-1"}


@pytest.fixture
def deployment(data_folder: Path) -> Iterator[RestartableDeployment]:
    made = RestartableDeployment(data_folder)
    yield made
    made.close()


def _is_new(deployment: RestartableDeployment, name: str, old_pid: int | None) -> bool:
    process = deployment.processes()[name]
    return process.state == "ready" and process.pid != old_pid


def _metrics_targets(data: Path) -> dict[str, str]:
    """Metrics URLs that Prometheus would find, by name of the process."""
    listed: list[Any] = msgspec.json.decode(DataFolder(data).prometheus_targets.read_bytes())
    return {entry["labels"]["instance"]: f"http://{entry['targets'][0]}/metrics" for entry in listed}


def _metrics(url: str) -> set[str]:
    """Names of the metrics that a process shows now."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return {line.split()[2] for line in answer.read().decode().splitlines() if line.startswith("# TYPE ")}


async def _commit_a_row(data: Path) -> None:
    connection = await asyncpg.connect(DataFolder(data).migration_database_url)
    try:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert await connection.fetchval(f"SHOW {setting}") == "on"
        await connection.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (42)")
    finally:
        await connection.close()


async def _kept(data: Path) -> int:
    connection = await asyncpg.connect(DataFolder(data).migration_database_url)
    try:
        return int(await connection.fetchval("SELECT id FROM kept"))
    finally:
        await connection.close()


async def test_kill_of_each_child_then_of_the_supervisor_then_a_clean_stop(deployment: RestartableDeployment) -> None:
    first_block = deployment.up()
    assert first_block[0].startswith("Slipstream is up")
    assert 'organization "demo"; shown once, stored hashed' in first_block[2]
    before = deployment.processes()
    assert set(before) == EXPECTED
    assert {process.state for process in before.values()} == {"ready"}
    await _commit_a_row(deployment.data)
    targets = _metrics_targets(deployment.data)
    assert targets.keys() == EXPECTED - {"valkey", "postgres"}
    for name, url in targets.items():
        assert _metrics(url) & METRIC_OF[name.partition("-")[0]], name

    # kill -9 of children: each comes back, the others keep their process
    for victim in ("postgres", "valkey", "gateway-1"):
        # kombu fails, and its worker starts again, when the broker goes while a task is not yet acknowledged
        eventually_blocking(functools.partial(_no_task_runs, deployment.data))
        old = deployment.processes()
        os.kill(old[victim].pid or 0, signal.SIGKILL)
        eventually_blocking(functools.partial(_is_new, deployment, victim, old[victim].pid))
        new = deployment.processes()
        assert {n: p.pid for n, p in new.items() if n != victim} == {n: p.pid for n, p in old.items() if n != victim}
        assert new[victim].restarts == 1
    assert _metrics_targets(deployment.data) == targets
    assert "slipstream_journal_healthy" in _metrics(targets["gateway-1"])
    assert await _kept(deployment.data) == 42

    # kill -9 of the supervisor: no orphan, and the next start is as good as the first
    pids = [process.pid for process in deployment.processes().values()]
    deployment.kill()
    eventually_blocking(lambda: not any(executes(pid) for pid in pids if pid))
    second_block = deployment.up()
    assert "as shown at the first start" in second_block[2]
    assert await _kept(deployment.data) == 42

    # an engine that cannot be reached is no reason not to start, and is named
    assert "warning: engine elsewhere-1 at http://127.0.0.1:9 is not usable: unhealthy" in deployment.errors.read_text()

    # down: everything ends, in order, without an error
    pids = [process.pid for process in deployment.processes().values()]
    assert deployment.run("down").stdout == "stopped\n"
    assert deployment.process is not None
    assert deployment.process.wait(60) == 0
    assert not any(executes(pid) for pid in pids if pid)
    assert "a second Ctrl-C cuts them off, and their usage is not billed" in deployment.errors.read_text()
    assert not DataFolder(deployment.data).prometheus_targets.exists()
    assert deployment.run("status").returncode == 1


@pytest.mark.nightly
def test_engines_are_niced_and_both_tiers_are_named(data_folder: Path) -> None:
    deployment = RestartableDeployment(data_folder, engines=True)
    try:
        block = deployment.up()
        assert block[1] == "  chat           slipstream-chat      embedded engine, 1 replica, 4,608 tokens"
        assert "  autocomplete   slipstream-code      embedded engine, 1 replica, 8,192 tokens" in block
        processes = deployment.processes()
        nice = {name: psutil.Process(process.pid).nice() for name, process in processes.items()}
        assert nice["engine-chat-1"] == nice["gateway-1"] + 5
        assert "restarts" in deployment.run("status").stdout
        assert deployment.run("status", "--json").returncode == 0
        answer = subprocess.run(
            block[-1].removeprefix("  try").strip(), shell=True, capture_output=True, text=True, timeout=60, check=True
        )
        assert answer.stdout.rstrip().endswith("data: [DONE]")
        request_id = "req_" + answer.stdout.partition('"id":"chatcmpl-')[2].partition('"')[0]
        # row and trace arrive each in their own time
        eventually_blocking(lambda: "status 200, no error" in deployment.run("requests", "show", request_id).stdout)
        eventually_blocking(lambda: "attempt 0" in deployment.run("requests", "show", request_id).stdout)
        shown = deployment.run("requests", "show", request_id).stdout
        assert (
            shown.index("    auth ")
            < shown.index("    limit ")
            < shown.index("    engine ")
            < shown.index("    stream ")
        )
        assert "engine-chat-1" in deployment.run("router", "explain", request_id).stdout
    finally:
        deployment.close()


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        page: bytes = answer.read()
    return page


def _ready(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
        body: dict[str, Any] = json.load(answer)
    return body


async def test_a_running_deployment_answers_its_commands_and_keeps_what_they_did(
    deployment: RestartableDeployment,
) -> None:
    deployment.up("--quiet")
    assert deployment.errors.read_text() == ""
    second = deployment.run("up", "--port", str(free_port()), *deployment.config)
    assert "already up on this data folder" in one_line(second)
    assert deployment.processes().keys() == EXPECTED
    eventually_blocking(lambda: "elsewhere-1  elsewhere  unhealthy  " in deployment.run("status").stdout)
    seen = deployment.run("status")  # every process is ready, and nothing could be served
    assert seen.returncode == 1
    assert seen.stdout.startswith(
        "Needs attention: 1 of 1 engine is not usable (elsewhere-1)\nAPI      http://127.0.0.1:"
    )
    assert max(map(len, seen.stdout.splitlines())) <= 100
    metrics = json.loads(deployment.run("status", "--json").stdout)["metrics"]
    assert metrics.keys() == EXPECTED - {"postgres", "valkey"}
    assert b"slipstream_" in _page(f"http://{metrics['gateway-1']}/metrics")
    assert json.loads(deployment.run("status", "--json").stdout)["replicas"][0]["usable"] is False
    # to a load balancer as well, without its address
    told = [{"id": "elsewhere-1", "pool": "elsewhere", "state": "unhealthy", "usable": False}]
    eventually_blocking(lambda: _ready(deployment.port)["replicas"] == told)
    assert _ready(deployment.port)["ready"] is True
    # the same running deployment: keys, logs and requests by command
    made = deployment.run("keys", "create", "--name", "second").stdout.strip()
    assert made.startswith("sk-slip-")
    listed = deployment.run("keys", "list").stdout
    assert made not in listed
    assert "second" in listed
    assert "revoked sk-slip-…" in deployment.run("keys", "revoke", "second").stdout
    assert "revoked" in deployment.run("keys", "list").stdout
    assert "router listening" in deployment.run("logs", "router").stdout
    assert deployment.run("requests", "show", "req_nothing").returncode == 1
    await _roles_own_nothing(deployment)
    _log_is_noted(deployment)
    _changed_settings_undo_edits(deployment)


async def _roles_own_nothing(deployment: RestartableDeployment) -> None:
    """Gateways and worker use a role that owns no table."""
    connection = await asyncpg.connect(DataFolder(deployment.data).migration_database_url)
    try:
        roles = await connection.fetch(
            "SELECT DISTINCT usename FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        assert [row["usename"] for row in roles] == [APPLICATION_ROLE]
        owners = await connection.fetch("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'gateway'")
        assert [row["tableowner"] for row in owners] == ["slipstream"]
    finally:
        await connection.close()


def _log_is_noted(deployment: RestartableDeployment) -> None:
    """The head of the audit log is noted outside the database, and found again."""
    heads = deployment.data / "audit" / FILE
    eventually_blocking(lambda: heads.exists() and heads.read_bytes().endswith(b"\n"))
    verified = deployment.run("console", "audit", "verify")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "1 recorded heads found again" in verified.stdout


def _changed_settings_undo_edits(deployment: RestartableDeployment) -> None:
    """A start with changed settings names the edits that they undo."""
    assert deployment.run("fleet", "replicas", "drain", "elsewhere-1", "--force").returncode == 0
    deployment.close()
    undone = "replica elsewhere-1 of elsewhere: weight 1.0 -> 0.0"
    settings = Path(deployment.config[1])
    settings.write_text(settings.read_text().replace("context_tokens = 1000", "context_tokens = 900"))
    deployment.up()
    told = deployment.errors.read_text()
    assert (
        f"since the previous settings: {undone}. Repeat the edits that you still want; `slipstream fleet rollback 2`"
        in told
    )
    assert "weight" not in told.replace(undone, "")
    listed = deployment.run("fleet", "versions").stdout
    assert listed.splitlines()[1].split()[0] == "3", "as it was foreseen"


@pytest.mark.nightly
async def test_servers_given_by_url_are_used_and_none_is_started(
    data_folder: Path, empty_postgres_url: str, valkey_url: str
) -> None:
    owner, application = empty_postgres_url, empty_postgres_url.replace("//slipstream@", f"//{APPLICATION_ROLE}@")
    urls = f'[local]\ndatabase_url = "{application}"\nmigration_database_url = "{owner}"\nvalkey_url = "{valkey_url}"\n'
    deployment = RestartableDeployment(data_folder, settings=urls)
    try:
        deployment.up()
        assert deployment.processes().keys() == EXPECTED - {"postgres", "valkey"}
        assert not (data_folder / "postgres").exists()
        assert OWNED not in deployment.errors.read_text()
    finally:
        deployment.close()
    connection = await asyncpg.connect(application)
    try:
        assert await connection.fetchval("SELECT count(*) FROM gateway.api_keys") == 1
    finally:
        await connection.close()
    # One role for everything: as it was, and said.
    alone = RestartableDeployment(
        data_folder, settings=f'[local]\ndatabase_url = "{owner}"\nvalkey_url = "{valkey_url}"\n'
    )
    try:
        alone.up()
        assert f"warning: {OWNED}" in alone.errors.read_text()
    finally:
        alone.close()


def test_a_metrics_port_in_use_stops_the_start(deployment: RestartableDeployment) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        configured = [*deployment.config, "--port", str(deployment.port), "--data", str(deployment.data)]
        refused = run("up", *configured, env={"SLIPSTREAM_ROUTER__METRICS__PORT": str(port)})
    assert refused.returncode == 2
    assert f"router.metrics.port: cannot listen on 127.0.0.1:{port}" in refused.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_a_second_ctrl_c_ends_everything_at_once_and_says_what_is_lost(deployment: RestartableDeployment) -> None:
    deployment.up()
    pids = [process.pid for process in deployment.processes().values()]
    gateway = deployment.processes()["gateway-1"].pid
    assert deployment.process is not None
    assert gateway is not None
    os.kill(gateway, signal.SIGSTOP)  # as if a long answer were being written
    deployment.process.send_signal(signal.SIGINT)
    eventually_blocking(lambda: "stopping: running requests may finish" in deployment.errors.read_text())
    deployment.process.send_signal(signal.SIGINT)
    assert deployment.process.wait(30) == 130
    assert deployment.errors.read_text().endswith("cut off: running requests were ended early and are not billed\n")
    eventually_blocking(lambda: not any(executes(pid) for pid in pids if pid))


def _no_task_runs(data: Path) -> bool:
    with redis.Redis(unix_socket_path=str(data / "run" / "valkey.sock")) as broker:
        return not broker.hlen("slipstream-worker:unacked") and not broker.llen("slipstream-worker:upkeep")
