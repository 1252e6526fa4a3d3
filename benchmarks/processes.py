"""The CPU time and the cores of processes that benchmarks run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil


class Scheduled(NamedTuple):
    """What a process and its children got from the kernel's scheduler so far, all threads together."""

    cpu_us: float
    waited_us: float
    """The time for which threads could run and waited for a core."""


def cpu_s(pid: int) -> float:
    """The user and kernel CPU time of a process so far, of all threads. Raises psutil.NoSuchProcess."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def threads_us(pid: int) -> dict[int, float]:
    """The CPU time of each thread of a process so far, by nanoseconds of the kernel's scheduler."""
    found = {}
    for task in _tasks(pid):
        with contextlib.suppress(OSError):  # it ended
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e3
    return found


def cpu_us(pid: int) -> float:
    """The CPU time of a process so far, of all running threads."""
    return sum(threads_us(pid).values())


def tree_us(pid: int) -> float:
    """The CPU time so far of a process and its children, those that ended included. Raises psutil.NoSuchProcess."""
    times = psutil.Process(pid).cpu_times()
    return (times.children_user + times.children_system) * 1e6 + sum(map(cpu_us, _tree(pid)))


def scheduled(pid: int) -> Scheduled:
    """The CPU time of a process and its running children, and their wait for it. Raises psutil.NoSuchProcess."""
    cpu_ns = waited_ns = 0
    for each in _tree(pid):
        for task in _tasks(each):
            with contextlib.suppress(OSError):  # it ended
                used, waited, _ = (task / "schedstat").read_text().split()
                cpu_ns += int(used)
                waited_ns += int(waited)
    return Scheduled(cpu_ns / 1e3, waited_ns / 1e3)


def pin(pid: int, cores: Collection[int]) -> None:
    """Run a process and its children on these cores from now on, and the threads and processes that they start later.
    Raises psutil.NoSuchProcess."""
    for each in _tree(pid):
        for task in _tasks(each):
            with contextlib.suppress(OSError):  # it ended
                os.sched_setaffinity(int(task.name), cores)


def _tree(pid: int) -> list[int]:
    """The process and its running children."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def _tasks(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):  # it ended
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []
