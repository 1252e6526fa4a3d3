"""Gateways restarted one after the other while requests arrive, each on a connection of its own: all are answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import openai
import psutil
import pytest

from infra.local.folders import DataFolder
from tests.deployment import Deployment, plain_environment
from tests.e2e.failures.processes import fresh_connections, process_ids
from tests.fakes.process import FakeEngineProcess
from tests.waiting import GUARD_S, eventually

MESSAGES = [{"role": "user", "content": "Hello"}]
REQUESTS = 300
PERIOD_S = 0.02
"""Between one request's start and the next one's, whether or not that has ended."""
MAX_AT_ONCE = 100
"""Else a machine on which a start takes long has only the load to do."""

HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Between fork and exec: the socket becomes descriptor 3, and its receiver is named."""


class Load:
    """Requests at a steady rate until told to end, and what became of each."""

    def __init__(self, url: str, key: str) -> None:
        self._client = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=fresh_connections()
        )
        self._requests: list[asyncio.Task[None]] = []
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Raises what the first failed request raised."""
        async with self._client:
            while len(self._requests) < REQUESTS or not self._over.is_set():
                await self._room.acquire()
                asking = asyncio.create_task(self._ask())
                asking.add_done_callback(lambda _: self._room.release())
                self._requests.append(asking)
                await asyncio.sleep(PERIOD_S)
            ended = await asyncio.gather(*self._requests, return_exceptions=True)
        failures = [repr(each) for each in ended if each is not None]
        assert failures == [], f"{len(failures)} of {len(ended)}"

    def end(self) -> None:
        """No more than there are, and than `REQUESTS`."""
        self._over.set()

    async def _ask(self) -> None:
        answer = await self._client.chat.completions.create(model="fake", messages=MESSAGES)  # type: ignore[arg-type]
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 0


@contextlib.asynccontextmanager
async def under_load(url: str, key: str) -> AsyncIterator[None]:
    """Inside, requests arrive; all of them were answered when it ends."""
    load = Load(url, key)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        try:
            yield
        finally:
            load.end()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.nightly)])
async def test_two_gateways_on_a_port_restarted_in_turn_lose_no_request(
    trial: Deployment, trial_engines: list[FakeEngineProcess], rounds: int
) -> None:
    key = await trial.make_key("--max-concurrency", "1000", "--requests-per-minute", "1000000")
    async with under_load(trial.url, key):
        for name in ("gateway-1", "gateway-2") * rounds:
            old = process_ids(trial)[name]
            os.kill(old, signal.SIGTERM)
            await eventually(_another_listens(trial, name, old))


def _another_listens(trial: Deployment, name: str, old: int) -> Callable[[], Awaitable[bool]]:
    async def listens() -> bool:
        pid = process_ids(trial).get(name, old)
        if pid == old:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = psutil.Process(pid).net_connections("tcp")
            return any(each.status == psutil.CONN_LISTEN and each.laddr.port == trial.port for each in connections)
        return False

    return listens


class ServiceManager:
    """As much of systemd as a socket unit is: holds a listening socket, starts gateways with it, hears that they are
    ready."""

    def __init__(self, trial: Deployment, folder: Path) -> None:
        self._settings = DataFolder(trial.data).settings_file
        self.held = socket.create_server(("127.0.0.1", 0), backlog=2_048)
        self.port = self.held.getsockname()[1]
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.bind(str(folder / "notify"))
        self._told.setblocking(False)
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self, instance: str) -> asyncio.subprocess.Process:
        """A gateway, once it has said READY=1."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HAND_OVER, str(self.held.fileno())),
            *(sys.executable, "-m", "slipstream", "gateway", "--config", str(self._settings)),
            *("--instance", instance),
            pass_fds=[self.held.fileno()],
            env={
                **plain_environment(),
                "LISTEN_FDS": "1",
                "NOTIFY_SOCKET": self._told.getsockname(),
                "SLIPSTREAM_GATEWAY__PORT": str(self.port),
                "SLIPSTREAM_GATEWAY__METRICS__PORT": "0",
            },
        )
        self._running.append(process)
        assert await self._hears() == b"READY=1"
        return process

    async def _hears(self) -> bytes:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._told, 100), GUARD_S)

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        """systemctl stop."""
        process.send_signal(signal.SIGTERM)
        assert await self._hears() == b"STOPPING=1"
        assert await asyncio.wait_for(process.wait(), GUARD_S) in (0, -signal.SIGTERM)

    async def close(self) -> None:
        """Leave nothing running."""
        for process in self._running:
            if process.returncode is None:
                process.kill()
                await process.wait()
        self.held.close()
        self._told.close()


@pytest.fixture
async def manager(trial: Deployment, data_folder: Path) -> AsyncIterator[ServiceManager]:
    made = ServiceManager(trial, data_folder.parent)
    yield made
    await made.close()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("restarts", [1, 20])
async def test_a_single_gateway_on_a_socket_that_its_manager_holds_loses_no_request(
    trial: Deployment, trial_engines: list[FakeEngineProcess], manager: ServiceManager, restarts: int
) -> None:
    """While none runs, connections wait in the socket's queue."""
    key = await trial.make_key("--max-concurrency", "1000", "--requests-per-minute", "1000000")
    gateway = await manager.start("gateway-held")
    async with under_load(f"http://127.0.0.1:{manager.port}", key):
        for _ in range(restarts):
            await manager.stop(gateway)
            gateway = await manager.start("gateway-held")
    await manager.stop(gateway)
