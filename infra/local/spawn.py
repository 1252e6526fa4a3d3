"""Starts one child that cannot outlive us: it has its own session and account, and gets a signal when we die."""

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
    """A program and the environment in which it runs."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variables to add to our own environment."""
    account: Account | None = None
    """The account that it runs as; None for ours."""
    nice: int = 0
    death_signal: int = signal.SIGKILL
    """The signal that the kernel sends it when we die, however we die."""
    descriptors: tuple[int, ...] = ()
    """Open file descriptors that it inherits under the same numbers."""
    folder: str | None = None
    """Its working directory; None for ours."""


async def spawn(launch: Launch, log: Path) -> asyncio.subprocess.Process:
    """Start the program with its output appended to `log`. Raises OSError if it cannot be executed.

    It must be called in the main thread: the kernel watches the *thread* that forked, so a child that a worker thread
    started would be killed when that thread ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread only; see the docstring")
    with log.open("ab") as output:
        return await _execute(launch, output, asyncio.subprocess.STDOUT)


def environment(launch: Launch) -> dict[str, str]:
    """Our environment without settings (children read theirs from a file), plus the launch's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**inherited, **launch.environment}


async def run_once(launch: Launch, log: Path, *, proceed: asyncio.Event | None = None) -> bytes:
    """Run a program to its end and return its standard output; its errors are appended to `log`.

    proceed: the program waits for a line on standard input once it has loaded; this event sends it. Raises ConfigError
    with the program's last line if it fails. Like `spawn`, it must be called in the main thread.
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
        # It has its own session: Ctrl-C in the terminal reaches only us, and we stop the children in order.
        start_new_session=True,
        pass_fds=launch.descriptors,
        preexec_fn=_tie_to_parent(launch.death_signal, launch.nice),
        **({} if launch.account is None else launch.account.dropping()),
    )


def _tie_to_parent(death_signal: int, nice: int) -> Callable[[], None]:
    """What the child runs between fork and exec, after the change of account (which would erase the death signal)."""
    parent = os.getpid()
    # Loaded before the fork: in the forked child, it could wait for a lock that another thread holds.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if nice:
            os.nice(nice)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # we died between fork and prctl: the signal would never come
            os._exit(1)

    return tie
