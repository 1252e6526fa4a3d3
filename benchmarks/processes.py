"""The CPU time of processes that benchmarks run."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil


def cpu_s(pid: int) -> float:
    """The user and kernel CPU time of a process so far, of all threads. Raises psutil.NoSuchProcess."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def threads_us(pid: int) -> dict[int, float]:
    """The CPU time of each thread of a process so far, by nanoseconds of the kernel's scheduler."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e3
    return found


def tree_us(pid: int) -> float:
    """The CPU time so far of a process and its children, those that ended included. Raises psutil.NoSuchProcess."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    spent_us = (times.children_user + times.children_system) * 1e6
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(OSError):
            spent_us += sum(threads_us(each.pid).values())
    return spent_us
