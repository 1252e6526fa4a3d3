"""The processes of a deployment as the kernel sees them: found, killed, kept from being restarted.

`slipstream status` would do, but not while the supervisor is stopped, and it costs the start of an interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import psutil

from infra.local.folders import DataFolder
from tests.deployment import Deployment
from tests.waiting import GUARD_S, eventually


def process_ids(deployment: Deployment) -> dict[str, int]:
    """Process ids by name: `gateway-1`, `router`, `engine-chat-1`, `worker`, `postgres`, `valkey`."""
    found = {}
    for child in psutil.Process(deployment.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            name = _name(child.cmdline())
            if name:
                found[name] = child.pid
    return found


def _name(arguments: list[str]) -> str:
    if "slipstream" in arguments:
        command = arguments[arguments.index("slipstream") + 1]
        if command == "gateway":
            return arguments[arguments.index("--instance") + 1]
        # an engine's settings are a file of its own, called as it is
        return Path(arguments[arguments.index("--config") + 1]).stem if command == "engine" else command
    program = arguments[0].rpartition("/")[2] if arguments else ""
    return next((name for name in ("postgres", "valkey") if program.startswith(name)), "")


async def kill(deployment: Deployment, name: str) -> int:
    """kill -9; returns the process id once that process is gone."""
    pid = process_ids(deployment)[name]
    os.kill(pid, signal.SIGKILL)

    async def gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await eventually(gone)
    return pid


async def kill_called(deployment: Deployment, name: str) -> None:
    """kill -9, once it runs, of the one process that is known by this name: its program's, or one of its arguments, as
    `webhooks` is of the worker of that queue."""

    def found() -> list[psutil.Process]:
        children = psutil.Process(deployment.process.pid).children()
        return [child for child in children if _is_called(name, _arguments_of(child))]

    async def runs() -> bool:
        return bool(found())

    await eventually(runs)
    [process] = found()
    process.kill()


def _arguments_of(process: psutil.Process) -> list[str]:
    """Of a child; none of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_called(name: str, arguments: list[str]) -> bool:
    return name in arguments or (bool(arguments) and arguments[0].rpartition("/")[2].startswith(name))


@contextlib.asynccontextmanager
async def no_restarts(deployment: Deployment) -> AsyncIterator[None]:
    """Inside, what is killed stays dead: the supervisor is stopped."""
    deployment.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        deployment.process.send_signal(signal.SIGCONT)


def fresh_connections() -> httpx2.AsyncClient:
    """A client that makes a connection for every request, so that the kernel spreads them over the gateways."""
    return httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0), timeout=GUARD_S)


def gateway_of(deployment: Deployment, response: httpx2.Response) -> str:
    """Which gateway holds the connection of a response that is still open."""
    _, port = response.extensions["network_stream"].get_extra_info("client_addr")
    for name, pid in process_ids(deployment).items():
        if name.startswith("gateway-"):
            with contextlib.suppress(psutil.NoSuchProcess):
                connections = psutil.Process(pid).net_connections("tcp")
                if any(connection.raddr and connection.raddr.port == port for connection in connections):
                    return name
    raise AssertionError(f"no gateway has a connection from port {port}")


async def all_ready(deployment: Deployment) -> None:
    """Return once every gateway of the deployment says that it is ready, on connections of its own."""
    settings = tomllib.loads(DataFolder(deployment.data).settings_file.read_text())
    wanted = {f"gateway-{number}" for number in range(1, settings["local"]["gateways"] + 1)}
    ready: set[str] = set()

    async def seen_all() -> bool:
        async with fresh_connections() as client:
            try:
                async with client.stream("GET", f"{deployment.url}/readyz") as response:
                    if response.status_code == 200:
                        ready.add(gateway_of(deployment, response))
            except (httpx2.TransportError, AssertionError):
                return False  # it died, or has only just started to listen
        return ready == wanted

    await eventually(seen_all)
