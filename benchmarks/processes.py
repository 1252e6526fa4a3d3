"""What benchmarks ask of processes: their CPU time, and ports for them."""

from __future__ import annotations

import socket

import psutil


def cpu_s(pid: int) -> float:
    """User and kernel CPU of a process so far, all threads. Raises psutil.NoSuchProcess."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def free_port() -> int:
    """A TCP port nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
