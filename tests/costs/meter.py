"""Counts the cost of one operation: the Python functions that it calls, by name, its allocated bytes and its I/O."""

from __future__ import annotations

import contextlib
import gc
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

import msgspec

from tests.costs.allocations import AllocatedBytes

ROOTS = (
    (f"{Path(__file__).parents[2] / 'tests'}/", "tests/"),
    (f"{sysconfig.get_path('purelib')}/", ""),
    (f"{Path(__file__).parents[2]}/", ""),
    (f"{sysconfig.get_path('stdlib')}/", "python/"),
    ("<frozen ", "python/<frozen "),
)
"""Prefixes of files' paths, and their replacement in names."""
LOOP = tuple(f"python/{name}.py" for name in ("asyncio/base_events", "asyncio/events", "asyncio/selector_events"))
"""Files of the event loop, which is uvloop's C code in a deployment."""


class Count(msgspec.Struct):
    """The result of one count. functions: calls by file and name; torch: operations of PyTorch that Python called; io:
    reads, writes and turns of the loop, see `Meter.transferred`."""

    functions: Counter[str]
    bytes: int = 0
    torch: int = 0
    io: dict[str, int] = {}


class Meter:
    """A counter that runs from `start` to `stop`, except from a `pause` to its `resume`.

    Calls and bytes are counted in separate runs, because a profile function makes the interpreter allocate.
    """

    def __init__(self) -> None:
        self._allocated = AllocatedBytes()
        self._calls: Counter[CodeType] = Counter()
        self._io: dict[str, int] = {}
        self._torch = 0
        self._before_bytes = 0
        self._running = False
        self._profiles = True

    @contextlib.contextmanager
    def for_bytes(self) -> Iterator[None]:
        """Count bytes instead of calls within this context."""
        with self._allocated.hooked():
            self._profiles = False
            yield
            self._profiles = True

    def start(self) -> None:
        self._calls.clear()
        self._io.clear()
        self._torch, self._before_bytes = 0, self._allocated.total
        self._running = True
        self._switch(True)

    def stop(self) -> Count:
        """End the count and return it. It covers only this thread."""
        self._switch(False)
        self._running = False
        functions: Counter[str] = Counter()
        for code, calls in self._calls.items():
            if (name := _named(code)) is not None:
                functions[name] += calls
        return Count(functions, self._allocated.total - self._before_bytes, self._torch, self._io.copy())

    def pause(self) -> None:
        """Stop counting until `resume`. Pauses do not nest."""
        if self._running:
            self._switch(False)

    def resume(self) -> None:
        if self._running:
            self._switch(True)

    def transferred(self, what: str) -> None:
        """Count a system call that the harness replaces. what: its kind, such as `reads from Valkey`."""
        if self._running and self._profiles:
            self._io[what] = self._io.get(what, 0) + 1  # a Counter would call a function of Python's library

    def _switch(self, on: bool) -> None:
        if self._profiles:
            sys.setprofile(self._profile if on else None)
        else:
            self._allocated.count(on)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._calls[frame.f_code] += 1
        elif event == "c_call" and _is_torch(argument):
            self._torch += 1


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Turn the garbage collector off: its runs are not predictable, and a full collection empties the free lists."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _is_torch(function: BuiltinFunctionType) -> bool:
    owner = function.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__module__.startswith("torch") or str(function.__module__).startswith("torch")


def _named(code: CodeType) -> str | None:
    """The function's file and name; None for the tests' and the event loop's."""
    path = code.co_filename
    for root, instead in ROOTS:
        if path.startswith(root):
            path = instead + path[len(root) :]
            break
    if path.startswith("tests/") or path in LOOP:
        return None
    return f"{path}:{code.co_qualname}"
