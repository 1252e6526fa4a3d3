"""The processor cores and the memory that an engine on a CPU may use; importable without torch, for the engine and for
`up`."""

from __future__ import annotations

import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
MEMORY = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cpus: Path = CPUS) -> int:
    """Cores that this process may use. Two processors that share a core count once: the kernels keep a core busy."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    places = {_place(cpus / f"cpu{number}" / "topology", number) for number in usable}
    return max(len(places), 1)


def _place(topology: Path, number: int) -> str:
    try:
        return f"{(topology / 'physical_package_id').read_text()} {(topology / 'core_id').read_text()}"
    except OSError:
        return str(number)


def shared_threads(cores: int, set_threads: int, engines: int) -> int:
    """Threads for each of so many engines that share a machine's cores. set_threads: of its other engines."""
    return max((cores - set_threads) // max(engines, 1), 1)


def free_bytes(memory: Path = MEMORY, cgroup: Path = CGROUP) -> int:
    """Memory that can be taken now: the machine's, or what a container's limit leaves."""
    try:
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return free
    return min(free, max(limit - used, 0))


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Memory of the machine, or what a container is given of it."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(whole, int((cgroup / "memory.max").read_text()))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return whole
