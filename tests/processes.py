"""One of the project's own programs as a child process: it starts, a test waits until it serves, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import aiohttp

from tests.deployment import ROOT
from tests.waiting import GUARD_S, START_S, eventually

Value = TypeVar("Value")


@contextlib.asynccontextmanager
async def module_process(
    module: str, *arguments: str, environment: Mapping[str, str], descriptors: int = 0
) -> AsyncIterator[Process]:
    """`python -m module arguments`, which SIGTERM ends. descriptors: its hard limit of open files, if not 0."""
    limited = ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh") if descriptors else ()
    process = await asyncio.create_subprocess_exec(
        *limited, sys.executable, "-m", module, *arguments, cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GUARD_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def executes(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def while_running(process: Process | subprocess.Popen[bytes], condition: Callable[[], Value]) -> Callable[[], Value]:
    """The condition for `eventually`, which raises AssertionError once the process has ended."""

    def held() -> Value:
        code = process.poll() if isinstance(process, subprocess.Popen) else process.returncode
        assert code is None, f"the process ended with {code}"
        return condition()

    return held


async def answers(session: aiohttp.ClientSession, url: str, process: Process) -> None:
    """Return once a GET of the URL is answered with 200. Raises AssertionError if the process ends before."""

    async def answered() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(url) as response:
                return response.status == 200
        return False

    await eventually(while_running(process, answered), START_S)
