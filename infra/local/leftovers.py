"""Finds the leftovers of an ended child: its descendants and, for a killed PostgreSQL, the processes in its data folder
and its lock files.

A pid in a file proves nothing: pids are reused, in a container almost at once. A leftover is a process that runs the
program `postgres` in our data folder, as every postmaster and backend does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

LEAVE_TIMEOUT_S = 5.0


def processes_in(folder: Path, program: str) -> list[int]:
    """Pids that run `program` with `folder` as working directory. Empty on a system without /proc (macOS)."""
    try:
        expected = folder.stat()
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            current = (entry / "cwd").stat()
            name = (entry / "exe").readlink().name.removesuffix(" (deleted)")
        except OSError:  # ended meanwhile, or another account's
            continue
        if (current.st_dev, current.st_ino) == (expected.st_dev, expected.st_ino) and name == program:
            found.append(int(entry.name))
    return found


def descendants(pid: int) -> list[int]:
    """File descriptors (pidfd) of the processes below `pid`, in any group and session. A process whose parent has ended
    is not found. Empty on a system without /proc (macOS)."""
    children = dict[int, list[int]]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    found, pending = list[int](), [pid]
    while pending:
        for child in children.pop(pending.pop(), ()):
            pending.append(child)
            with contextlib.suppress(OSError):
                found.append(os.pidfd_open(child))
    return found


def kill(processes: Iterable[int]) -> None:
    """Send SIGKILL to processes by their file descriptors, and close these: a reused pid is another process."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)


async def clear_postgres(data: Path, sockets: Path) -> None:
    """End orphaned PostgreSQL processes of `data`, then remove its stale lock files.

    The caller must hold the data folder's lock and must run no postmaster.
    """
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    number = signal.SIGQUIT  # immediate shutdown: backends drop their work and exit, the write-ahead log is kept
    while orphans := processes_in(data, "postgres"):
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        await asyncio.sleep(0.02)
    _unlink_locks(data, sockets)


def _unlink_locks(data: Path, sockets: Path) -> None:
    for stale in (data / "postmaster.pid", *sockets.glob(".s.PGSQL.*")):
        stale.unlink(missing_ok=True)
