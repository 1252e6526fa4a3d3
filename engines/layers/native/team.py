"""Several threads that run one kernel together, each with its own columns, and meet at barriers inside it.

The threads are Python's, woken for each call: a kernel holds no interpreter lock. The barrier of a call is a counter
that only grows: an early thread spins for a moment, then yields the processor between two reads. The number of threads
does not change how a number is computed, so results are equal bit by bit.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engines.layers.native.compiled import compiled
from engines.layers.native.vectors import INT32, INT64, number, pointer

SPINS = 2_000
"""Reads of the counter before the thread yields the processor between reads."""
Job = Callable[[int], None]


class Team:
    """`parts` threads, the caller's included."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self._counter = np.zeros(1, np.int64)
        self.meeting = self._counter.ctypes.data
        """The counter's address, for `meet`."""
        self._jobs: list[queue.SimpleQueue[Job | None]] = [queue.SimpleQueue() for _ in range(1, parts)]
        self._calling = threading.Lock()
        for part, jobs in enumerate(self._jobs, start=1):
            threading.Thread(target=_work, args=(part, jobs), name=f"kernels {part}", daemon=True).start()
        weakref.finalize(self, _end, self._jobs)

    def run(self, job: Job) -> None:
        """Call `job` with 0 to parts - 1, each in a thread of its own. All must run the same kernel: the others would
        wait forever for a thread that skips a barrier."""
        if self.parts == 1:
            job(0)
            return
        with self._calling:
            for jobs in self._jobs:
                jobs.put(job)
            job(0)


def _work(part: int, jobs: queue.SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job(part)
        del job


def _end(jobs: list[queue.SimpleQueue[Job | None]]) -> None:
    for each in jobs:
        each.put(None)


@intrinsic
def _come(typing_context: Any, counter: Any) -> Any:
    """Add one to the integer at an address; returns the sum."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        before = builder.atomic_rmw("add", pointer(builder, arguments[0], INT64), number(1), "acq_rel")
        return builder.add(before, number(1))

    return types.int64(types.uintp), code


@intrinsic
def _come_so_far(typing_context: Any, counter: Any) -> Any:
    """Read the integer at an address (acquire)."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(pointer(builder, arguments[0], INT64), "acquire", 8)

    return types.int64(types.uintp), code


@intrinsic
def _give_way(typing_context: Any) -> Any:
    """Yield the processor to another thread."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(INT32, []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), code


@compiled
def meet(meeting: int, parts: int) -> None:
    """Barrier: return once every part has called it as often as this one."""
    if parts == 1:
        return
    come = _come(meeting)
    expected = (come + parts - 1) // parts * parts
    looks = 0
    while _come_so_far(meeting) < expected:
        looks += 1
        if looks > SPINS:
            _give_way()


@compiled
def columns_of(part: int, parts: int, width: int, panel: int) -> Any:
    """Start and stop of a part's columns, in whole panels."""
    panels = width // panel
    return panels * part // parts * panel, panels * (part + 1) // parts * panel
