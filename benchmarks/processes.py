"""Helpers of benchmarks that run processes: their CPU time, and free ports."""

from __future__ import annotations

import socket

import psutil


def cpu_s(pid: int) -> float:
    """The user and kernel CPU time of a process so far, of all threads. Raises psutil.NoSuchProcess."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def free_port() -> int:
    """A TCP port on which no process listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
