"""Counts the cores and memory that an engine on a CPU may use. It imports no torch, so that `up` can use it too."""

from __future__ import annotations

import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
MEMORY = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cpus: Path = CPUS) -> int:
    """Cores that this process may use. Logical CPUs of a core count once, because the kernels keep a core busy."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_place(cpus / f"cpu{number}" / "topology", number) for number in usable}
    return max(len(cores), 1)


def _place(topology: Path, number: int) -> str:
    try:
        return f"{(topology / 'physical_package_id').read_text()} {(topology / 'core_id').read_text()}"
    except OSError:
        return str(number)


def shared_threads(cores: int, set_threads: int, engines: int) -> int:
    """Threads for each of `engines` engines that share a machine's cores. set_threads: those of its other engines."""
    return max((cores - set_threads) // max(engines, 1), 1)


def free_bytes(memory: Path = MEMORY, cgroup: Path = CGROUP) -> int:
    """Memory that is available now, on the machine and within a container's limit."""
    try:
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no such group, or "max" for no limit
        return free
    return min(free, max(limit - used, 0))


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Memory of the machine, or the container's limit if it is lower."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(whole, int((cgroup / "memory.max").read_text()))
    except (OSError, ValueError):  # no such group, or "max" for no limit
        return whole
