"""A whole deployment for tests and benchmarks: `slipstream up` in a folder of its own, as a user would start it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.cluster_template import copy_cluster
from tests.temporary import short_folder
from tests.waiting import GUARD_S, START_S, eventually

ROOT = Path(__file__).parents[1]
FIRST_PORT, PORTS = 16_000, 2_000
"""Of each test process: up to eight fit below 32,768, where Linux' ephemeral ports begin."""
# far from where another run begins that was started at the same moment: gateways share ports without a word
_tried = itertools.count(os.getpid() * 101)


def free_port() -> int:
    """A port nobody listens on now. Below those that the kernel gives to clients, and from a range of this test
    process' own: a port that was free is not taken before it is used."""
    first, count = FIRST_PORT + worker_number() * PORTS, PORTS
    for _ in range(count):
        port = first + next(_tried) % count
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"all ports from {first} to {first + count - 1} are taken")


def worker_number() -> int:
    """Which of pytest-xdist's processes this is; 0 where there is one."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def plain_environment() -> dict[str, str]:
    """This process' environment without settings of Slipstream's but three: no test has a load balancer to wait for,
    none fetches the chat model, and a start that takes long on a busy machine is no failure."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM_")}
    return {
        **others,
        "SLIPSTREAM_GATEWAY__LEAVE_AFTER_S": "0",
        "SLIPSTREAM_LOCAL__FETCH_CHAT_MODEL": "false",
        "SLIPSTREAM_LOCAL__READY_TIMEOUT_S": str(START_S),
    }


class Deployment:
    """A running deployment. Use `deployment`."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path, port: int, key: str, output: str) -> None:
        self.process = process
        self.data = data
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.key = key
        """The key that `up` showed."""
        self.output = output
        """What `up` printed until it was up."""

    @property
    def database_url(self) -> str:
        """For asyncpg."""
        return f"postgresql://slipstream@/slipstream?host={self.data / 'run' / 'postgres'}"

    async def command(self, *arguments: str, accept: Sequence[int] = (0,)) -> str:
        """Output of a `slipstream` command on this deployment. accept: the exit codes that are no failure."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "slipstream", *arguments, "--data", str(self.data),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
            env=plain_environment(),
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode in accept, output.decode()
        return output.decode()

    async def make_key(self, *options: str) -> str:
        """A new key's secret, of an organization that may be new; options as of `slipstream keys create`."""
        return key_in(await self.command("keys", "create", "--create-missing", *options))

    async def processes(self) -> dict[str, dict[str, Any]]:
        """What `slipstream status --json` says, by process name."""
        status = msgspec.json.decode(await self.command("status", "--json"))
        return {process["name"]: process for process in status["processes"]}

    async def pid(self, name: str) -> int:
        """A process' id now."""
        return int((await self.processes())[name]["pid"])

    async def kill(self, name: str) -> None:
        """kill -9 one process; the supervisor starts it again."""
        os.kill(await self.pid(name), signal.SIGKILL)

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection to the deployment's database."""
        connection = await asyncpg.connect(self.database_url)
        try:
            yield connection
        finally:
            await connection.close()

    async def ledger(self, *request_ids: str) -> list[dict[str, Any]]:
        """The ledger's rows of these requests (all, when none are given), once there is at least one of each."""
        async with self.database() as connection:

            async def complete() -> tuple[list[dict[str, Any]]] | None:
                rows = [dict(row) for row in await connection.fetch("SELECT * FROM gateway.usage_events")]
                chosen = [row for row in rows if not request_ids or row["request_id"] in request_ids]
                return (chosen,) if {row["request_id"] for row in chosen} >= set(request_ids) else None

            complete_rows: tuple[list[dict[str, Any]]] = await eventually(complete)
        return complete_rows[0]

    def log(self, name: str) -> str:
        """A process' log so far."""
        return (self.data / "logs" / f"{name}.log").read_text()


def key_in(output: str) -> str:
    """The key in what a command printed."""
    found = re.search(r"sk-slip-[0-9A-Za-z]{38}", output)
    assert found is not None, output
    return found.group()


def fake_fleet(
    *urls: str,
    model: str = "fake",
    driver: str = "sglang",
    tokenizer: str | None = None,
    context_tokens: int = 4_096,
    max_adapters: int = 0,
) -> dict[str, str]:
    """Environment that makes one pool of these engines serve the chat model `model`."""
    replicas = tuple(Replica(f"fake-{number}", url) for number, url in enumerate(urls))
    pool = Pool("fake", driver, replicas, 1_000, max_adapters=max_adapters)
    entry = Model(model, Tier.CHAT, "fake", context_tokens, tokenizer=tokenizer)
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode([entry]).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
    }


@contextlib.asynccontextmanager
async def deployment(
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    token: str | None = None,
    data: Path | None = None,
    on_disk: bool = False,
) -> AsyncIterator[Deployment]:
    """Start, wait until it is up, stop.

    token: what engines outside the deployment expect. data: keep this folder; None: a temporary one, removed at the
    end. on_disk: for what is measured, whose writes must cost what they cost a user; else it is in memory where there
    is room.
    """
    folder = data or (Path(tempfile.mkdtemp(prefix="slip-up-")) if on_disk else short_folder("slip-up-"))
    folder.mkdir(exist_ok=True)
    if not (folder / "postgres").exists():
        await copy_cluster(folder)
    if token is not None:
        for name in ("token", "engine.metrics.token"):  # the fake engines know one
            (folder / name).write_text(token)
            (folder / name).chmod(0o600)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "up", "--data", str(folder), "--port", str(port), *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
        env={**plain_environment(), **(environment or {})},
    )  # fmt: skip
    try:
        # `up` itself gives up after START_S, and names the process that is not ready
        output = await asyncio.wait_for(_output_until_up(process), START_S + GUARD_S)
        key = re.search(r"sk-slip-[0-9A-Za-z]{38}", output)
        yield Deployment(process, folder, port, key.group() if key else "", output)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(process.communicate(), 60)
            except TimeoutError:
                process.kill()
                await process.wait()
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)


async def _output_until_up(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    lines = []
    while line := (await process.stdout.readline()).decode():
        lines.append(line)
        if line.lstrip().startswith("try "):
            return "".join(lines)
    raise AssertionError("slipstream up ended:\n" + "".join(lines))
