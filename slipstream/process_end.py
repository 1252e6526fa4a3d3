"""The end of our processes: the signals that request it, and an exit that skips Python's own cleanup."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn


def termination_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, and SIGHUP, which a closed terminal sends, unless `nohup` made the process ignore it."""
    return (signal.SIGTERM,) if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible(first: Callable[[], object] = lambda: None) -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets while the block runs, in the running loop. first: called at the first Ctrl-C."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupt() -> None:
        if not stop.is_set():
            first()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def leave() -> NoReturn:
    """Exit with code 0, after the registered exit functions. Call it when all resources are released.

    Python would free every object of every module one by one. With torch loaded, that takes a second of a CPU, and
    several on a busy machine, for memory that the kernel frees at once; a shutdown of the machine would wait for it.
    """
    atexit._run_exitfuncs()  # no public function runs them before the modules are freed
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
