"""Makes `/metrics` right with several instances on one port: every answer is about all of them.

prometheus_client's multiprocess mode: each process keeps its samples in files of one folder, and whoever is asked adds
them up. Counters of processes that have ended stay in the sum; their gauges do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead


def count_for_one_process() -> None:
    """Make samples of this process without asking for its id each time.

    By default every increment calls getpid, in case the process was forked: a gateway never is, and on virtual machines
    those calls were 6 % of its CPU. To be called before any metric is made.
    """
    pid = os.getpid()
    values.ValueClass = values.MultiProcessValue(lambda: pid)  # type: ignore[no-untyped-call]


def renderer(folder: Path) -> Callable[[], tuple[bytes, str]]:
    """A function that gives the metrics of all instances and their content type. Reads files: not for an event loop."""

    def render() -> tuple[bytes, str]:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST

    return render


def forget_dead_instances(folder: Path) -> None:
    """Drop the gauges of instances that ended without saying so."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _alive(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
