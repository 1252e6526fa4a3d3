"""Starts one child so that it cannot outlive us: its own session, its own account, and a signal when we die."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import msgspec

from contracts.errors import ConfigError
from contracts.settings import PREFIX
from infra.local.account import Account
from infra.local.log_file import last_line

PR_SET_PDEATHSIG = 1


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to execute a program."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Added to our own environment."""
    account: Account | None = None
    """Who it runs as; None: as we do."""
    nice: int = 0
    death_signal: int = signal.SIGKILL
    """What the kernel sends it when we die, however we die."""
    descriptors: tuple[int, ...] = ()
    """Open file descriptors it inherits under the same numbers."""
    folder: str | None = None
    """Its working directory; None: ours."""


async def spawn(launch: Launch, log: Path) -> asyncio.subprocess.Process:
    """Start the program with its output appended to `log`. Raises OSError when it cannot be executed.

    Must be called in the main thread: the kernel watches the *thread* that forked, so a child started from a worker
    thread would be killed when that thread ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread only; see the docstring")
    with log.open("ab") as output:
        return await _execute(launch, output, asyncio.subprocess.STDOUT)


def environment(launch: Launch) -> dict[str, str]:
    """Our environment without settings (children get theirs by file, decided once), plus the launch's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, **launch.environment}


async def run_once(launch: Launch, log: Path, *, proceed: asyncio.Event | None = None) -> bytes:
    """Run a program to its end and return what it printed; its errors are appended to `log`.

    proceed: the program waits for a line on standard input once it has loaded; this event sends it. Raises ConfigError
    with the program's last line when it fails. Main thread only, like `spawn`.
    """
    with log.open("ab") as errors:
        stdin = asyncio.subprocess.DEVNULL if proceed is None else asyncio.subprocess.PIPE
        process = await _execute(launch, asyncio.subprocess.PIPE, errors, stdin)
    if proceed is not None:
        await proceed.wait()
    output, _ = await process.communicate(None if proceed is None else b"\n")
    if process.returncode != 0:
        raise ConfigError(last_line(log) or f"{launch.argv[-1]} failed with exit code {process.returncode}; see {log}")
    return output


async def _execute(
    launch: Launch, stdout: IO[bytes] | int, stderr: IO[bytes] | int, stdin: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *launch.argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment(launch),
        cwd=launch.folder,
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we stop the others in order.
        start_new_session=True,
        pass_fds=launch.descriptors,
        preexec_fn=_tie_to_parent(launch.death_signal, launch.nice),
        **({} if launch.account is None else launch.account.dropping()),
    )


def _tie_to_parent(death_signal: int, nice: int) -> Callable[[], None]:
    """What the child runs between fork and exec, after the change of account (which would erase the death signal)."""
    parent = os.getpid()
    # Looked up before the fork: loading a library in the forked child could wait for a lock held by another thread.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if nice:
            os.nice(nice)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # we died between fork and prctl: nobody would send the signal any more
            os._exit(1)

    return tie
