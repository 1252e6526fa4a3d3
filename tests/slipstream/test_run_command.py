"""`slipstream run` starts a client for this deployment and takes its key back; `slipstream doctor` names faults."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import click
import msgspec
import pytest

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError, NoEngine
from contracts.generation import Tier
from control.tenants.limits import NewLimits
from gateway.desired.store import DesiredStateStore
from infra.local.folders import DataFolder
from slipstream import lent_key
from slipstream.coding_clients import CLIENTS, Served, environment_of
from slipstream.commands import run as run_command
from slipstream.commands.options import Deployment
from slipstream.doctor import Check, Health, Outcome
from slipstream.exit_codes import DOCTOR_EXIT
from slipstream.lent_key import require_key_accepted
from slipstream.replicas import ReplicaStatus
from tests.deployment import free_port
from tests.desired_states import seed
from tests.fakes.process import fake_engine
from tests.slipstream.shell import VARIABLE, Shell
from tests.waiting import GUARD_S, START_S, eventually

MODELS = (
    Model("small", Tier.CHAT, "one", 8_000, aliases=("quick",)),
    Model("large", Tier.CHAT, "one", 200_000),
    Model("fill", Tier.AUTOCOMPLETE, "one", 8_000),
)
CLIENT = """#!{python}
import json, os, pathlib, signal, sys, time
given = dict(arguments=sys.argv[1:], environment=dict(os.environ))
pathlib.Path({told!r}).write_text(json.dumps(given))
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("waiting", flush=True)
    time.sleep(100)
sys.exit(7)
"""
WAITING = "SELECT pid FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) AND NOT granted"
ROWS = "SELECT action, actor_name FROM gateway.audit_log WHERE actor_name LIKE '%slipstream run%' ORDER BY id"


@contextlib.contextmanager
def gateway(serves: str) -> Iterator[str]:
    """Refuses every body as a gateway does on this path, and knows no other."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            known = self.path == serves and self.headers["authorization"].startswith("Bearer sk-slip-")
            self.send_response(302 if "moved" in self.path else 400 if known else 404)
            self.send_header("location", serves)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Runner:
    """Runs `slipstream run` as a process: signals are a process's."""

    def __init__(self, url: str, data: Path, folder: Path) -> None:
        self._options = ("--data", str(data))
        self.told = folder / "told.json"
        self._environment = {**os.environ, VARIABLE: url, "PATH": f"{folder}:{os.environ['PATH']}"}
        program = folder / "aider"
        program.write_text(CLIENT.format(python=sys.executable, told=str(self.told)))
        program.chmod(0o755)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "slipstream", "run", *self._options, *arguments)
        return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=self._environment)

    async def run(self, *arguments: str) -> tuple[int | None, str]:
        process = await self.start(*arguments)
        _, told = await process.communicate()
        return process.returncode, told.decode()


@pytest.fixture
async def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    store = DesiredStateStore(fresh_postgres_url)
    await store.start()
    await seed(store, MODELS, (Pool("one", "sglang"),))
    await store.stop()
    shell = Shell(fresh_postgres_url, data_folder)
    await shell.must("customers", "organizations", "create", "acme")
    await shell.must("customers", "projects", "create", "web", "--organization", "acme")
    return shell


async def test_a_signal_before_the_client_starts_leaves_no_key(
    shell: Shell, connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the client is gone
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    runner = Runner(fresh_postgres_url, data_folder, tmp_path)
    process = await runner.start("--organization", "acme", "--project", "web", "--url", url, "aider")
    async with asyncio.timeout(START_S):
        await asked.wait()
    async with connection.transaction():
        assert len(await connection.fetch("SELECT FROM gateway.api_keys WHERE revoked_at IS NULL FOR UPDATE")) == 1
        process.send_signal(signal.SIGTERM)
        await eventually(lambda: connection.fetchval(WAITING))
        process.send_signal(signal.SIGINT)  # an impatient second one, while the key is being revoked
    assert await process.wait() != 0
    assert await connection.fetchval("SELECT count(*) FROM gateway.api_keys WHERE revoked_at IS NULL") == 0
    server.close()


async def test_a_client_runs_with_a_key_that_ends_with_it(
    shell: Shell, connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    runner = Runner(fresh_postgres_url, data_folder, tmp_path)
    ours = ("--organization", "acme", "--project", "web")
    with gateway("/v1/chat/completions") as url:
        code, said = await runner.run(*ours, "--model", "quick", "--url", f"{url}/v1", "aider", "--yes", "a b")
        assert code == 7, said
        told = msgspec.json.decode(runner.told.read_bytes())
        assert told["arguments"][:2] == ["--model", "openai/small"]
        assert told["arguments"][-2:] == ["--yes", "a b"]
        secret = told["environment"]["OPENAI_API_KEY"]
        assert told["environment"]["OPENAI_API_BASE"] == f"{url}/v1"
        assert secret not in str(told["arguments"])
        assert secret not in said
        (key,) = await connection.fetch(
            "SELECT revoked_at, expires_at - k.created_at AS life, requests_per_minute, max_concurrency"
            " FROM gateway.api_keys k JOIN gateway.limits ON subject_id = k.id"
        )
        assert key["revoked_at"] is not None
        assert round(key["life"].total_seconds() / 3_600) == 1, "a killed command does not revoke it"
        assert (key["requests_per_minute"], key["max_concurrency"]) == (600, 16)

        waiting = await runner.start(*ours, "--url", url, "aider", "wait")
        assert waiting.stdout is not None
        assert await waiting.stdout.readline() == b"waiting\n"
        assert await connection.fetchval("SELECT count(*) FROM gateway.api_keys WHERE revoked_at IS NULL") == 1
        waiting.send_signal(signal.SIGTERM)
        assert await waiting.wait() == 5, "the client's own end"
        assert await connection.fetchval("SELECT count(*) FROM gateway.api_keys WHERE revoked_at IS NULL") == 0

    rows = await connection.fetch(ROWS)
    assert [row["action"] for row in rows] == ["key.create", "limits.put", "key.revoke"] * 2
    code, said = await runner.run(*ours, "--model", "fill", "aider")
    assert "project 'web' may use no chat model 'fill'; it may use: small, large" in said
    assert code != 0
    assert await connection.fetch(ROWS) == rows, "no key was made"


async def test_a_running_command_moves_the_end_of_its_key_up_to_the_hours(
    shell: Shell,
    connection: asyncpg.Connection[Any],
    fresh_postgres_url: str,
    data_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, fresh_postgres_url)
    monkeypatch.setattr(lent_key, "LOOK_S", 0.0)
    until = datetime.now(UTC) + timedelta(seconds=2 * lent_key.LIFETIME_S)
    payer = lent_key.Payer("acme", "web")

    def run() -> None:
        deployment = Deployment(None, str(data_folder))
        with click.Context(run_command.run, info_name="run"):
            lent = lent_key._made(deployment, "run aider", payer, NewLimits(), None, {Tier.CHAT}, until)
            assert lent.key.expires_at is not None
            assert lent.key.expires_at < until
            monkeypatch.setattr(lent_key, "LIFETIME_S", 4 * lent_key.LIFETIME_S)  # so that it is due, and up to the end
            with lent_key._renewed(deployment, lent.key, until):
                next(each for each in threading.enumerate() if each.name == "renew key").join(GUARD_S)

    await asyncio.to_thread(run)
    assert await connection.fetchval("SELECT expires_at FROM gateway.api_keys") == until
    assert await connection.fetchval("SELECT count(*) FROM gateway.audit_log WHERE action = 'key.update'") > 0


async def test_a_client_that_is_not_installed_is_named_with_its_install_command(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = await Shell("postgresql:///none", data_folder).run("run", "codex")
    assert (code, said) == (1, "codex is not installed here; install it with `npm install -g @openai/codex`")


def test_a_gateway_that_cannot_serve_the_client_is_refused() -> None:
    with gateway("/v1/messages") as url:
        require_key_accepted(url, "/v1/messages", "claude", "sk-slip-1")
        with pytest.raises(ConfigError, match="does not serve /v1/chat/completions, which aider speaks"):
            require_key_accepted(url, "/v1/chat/completions", "aider", "sk-slip-1")
        with pytest.raises(ConfigError, match="redirects to another address"):  # which would be given the key
            require_key_accepted(f"{url}/moved", "/v1/messages", "claude", "sk-slip-1")
    with pytest.raises(NoEngine, match=r"no gateway answers at http://127\.0\.0\.1:1"):
        require_key_accepted("http://127.0.0.1:1", "/v1/messages", "claude", "sk-slip-1")


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_is_led_here_and_only_its_environment_holds_the_key(name: str) -> None:
    client, served = CLIENTS[name], Served("https://gw.example", "sk-slip-secret", "qwen", 40_000)
    own = {"HOME": "/home/ada", "ANTHROPIC_API_KEY": "sk-ant-1", "PATH": "/bin"}
    environment, arguments = environment_of(client, served, own), client.arguments(served)
    assert environment["HOME"] == "/home/ada"
    assert "sk-slip-secret" in environment.values()
    assert not [each for each in arguments if "sk-slip-secret" in each]
    assert "https://gw.example" in str(environment) + str(arguments)
    assert "qwen" in str(environment) + str(arguments)
    assert ("ANTHROPIC_API_KEY" in environment) is (name != "claude")
    if name == "claude":
        assert environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "10000", "beside a prompt of 30,000"
    if name == "opencode":
        assert msgspec.json.decode(environment["OPENCODE_CONFIG_CONTENT"])["model"] == "slipstream/qwen"


async def test_the_doctor_names_each_part_and_the_next_step(
    shell: Shell, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_GATEWAY__PORT", str(free_port()))  # somebody's deployment may have 8000
    code, said = await shell.run("doctor", "--json")
    health = msgspec.json.decode(said)
    found = {each["name"]: each["outcome"] for each in health["checks"]}
    assert found == {
        "settings": "ok", "database": "ok", "valkey": "failed", "processes": "skipped", "fleet": "ok",
        "engines": "failed", "gateway": "failed", "disk": "ok", "objectives": "skipped", "diagnosis": "ok",
    }  # fmt: skip
    assert (code, health["ok"]) == (1, False)
    steps = {each["name"]: each["step"] for each in health["checks"] if each["outcome"] == "failed"}
    assert all(steps.values())
    assert f"--data {DataFolder(data_folder).path}" in steps["gateway"]
    async with fake_engine("sk-right") as engine:
        monkeypatch.setenv("ONE_API_KEY", "sk-right")
        set_pool = ("fleet", "pools", "set", "one", "--driver", "sglang", "--api-key-env", "ONE_API_KEY")
        await shell.must(
            *set_pool, "--replica", f"one-0={engine.url}", "--replica", "gone=http://127.0.0.1:9", "--force"
        )
        replicas = [
            ReplicaStatus("one-0", "one", engine.url, "healthy", True, True, "healthy", ""),
            ReplicaStatus("gone", "one", "http://127.0.0.1:9", "dead", False, True, "dead", ""),
        ]
        monkeypatch.setattr("slipstream.replicas.replicas_of", lambda *_: replicas)
        _, said = await shell.run("doctor", "--json")
    engines = next(each for each in msgspec.json.decode(said)["checks"] if each["name"] == "engines")
    assert engines["outcome"] == "failed", "healthy, and asked for a model that it does not serve"
    assert f"one-0: {engine.url} serves 'fake', not '{MODELS[0].name}'; set models." in engines["told"]
    assert engines["told"].endswith("1 of 2 take no requests: gone (dead)"), "which is not asked"
    ok, warning, failed = (
        Check(outcome.value, outcome, "") for outcome in (Outcome.OK, Outcome.WARNING, Outcome.FAILED)
    )
    for checks, exit_code in ([ok], 0), ([ok, warning], 4), ([warning, failed], 1):
        assert DOCTOR_EXIT[Health(True, checks).worst] == exit_code
