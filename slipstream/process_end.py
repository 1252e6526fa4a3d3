"""How a process of ours ends: the signals that ask for it, and an end without Python's own."""

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
    """SIGTERM, and SIGHUP of a terminal that is closed, which `nohup` has the process ignore."""
    return (signal.SIGTERM,) if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible(first: Callable[[], object] = lambda: None) -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets while the block runs, in the running loop. first: called at the first Ctrl-C."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask() -> None:
        if not stop.is_set():
            first()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def leave() -> NoReturn:
    """End with exit code 0. To be called when everything was given back; what registered itself for the end still runs.

    Python would now take every module apart, one object after the other. Where torch is loaded that is a second of a
    processor, of a busy one several, for memory that the kernel takes back at once; and who stops a machine waits for
    it.
    """
    atexit._run_exitfuncs()  # there is no public way to run them before the modules go
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
