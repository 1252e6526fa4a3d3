"""The engine's side of a process that tries grammars, which starts it when needed and kills it at the deadline."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Collection
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.orders import Order, Verdict, receive, send
from engines.embedded.grammar.vocabulary import KeptDefinition

START_TIMEOUT_S = 60.0
"""Time limit for imports and for reading the vocabulary on a busy machine."""
MODULE = "engines.embedded.grammar.trial"


class TrialProcess:
    """A process that tries one grammar at a time. Its methods block, so threads call them; any may call `kill`."""

    def __init__(self, definition: KeptDefinition, width: int, end_ids: Collection[int], config: GrammarConfig) -> None:
        """definition, width, end_ids: see `Vocabulary`."""
        self._definition = definition
        self._width, self._end_ids = str(width), msgspec.json.encode(sorted(end_ids)).decode()
        self._compile_bytes = str(config.compile_bytes)
        self._timeout_s = config.compile_timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[Connection, ...] = ()
        """The pipes for the orders and verdicts of the child."""
        self._lock = threading.Lock()
        self.closed = False
        """Whether `close` was called, so that no process starts again."""

    def warm(self) -> None:
        """Start the process unless it runs. Raises EOFError or TimeoutError if it does not start."""
        with self._lock:
            self._running()

    def run(self, text: str, left: threading.Event) -> Verdict:
        """Try a grammar. left: set before `kill` if the caller no longer waits for the verdict.

        Raises TimeoutError at the deadline, and EOFError if the process ended because of `kill` or its memory limit;
        the next call then restarts it.
        """
        with self._lock:
            child = self._running()
            try:
                verdict = self._ask(Order(text, self._timeout_s), left)
            except BaseException:
                self._end(child)
                raise
            return verdict

    def kill(self) -> None:
        """Kill the process, at any point of its work."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Kill the process and never restart it."""
        self.closed = True
        self.kill()
        with self._lock:
            if self._child is not None:
                self._end(self._child)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.closed:
            raise EOFError
        if self._child is not None and self._child.poll() is None:
            return self._child
        if self._child is not None:
            self._end(self._child)
        definition = self._definition.descriptor()
        orders_in, orders = Pipe(duplex=False)
        verdicts, verdicts_out = Pipe(duplex=False)
        self._pipes = orders, verdicts
        with orders_in, verdicts_out:
            self._child = child = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(definition), self._width, self._end_ids, self._compile_bytes],
                pass_fds=(definition,),
                stdin=orders_in.fileno(),
                stdout=verdicts_out.fileno(),
                env=_environment(),
                # the engine handles Ctrl-C in the terminal
                start_new_session=True,
            )
        try:
            receive(verdicts, START_TIMEOUT_S)
        except BaseException:
            self._end(child)
            raise
        return child

    def _ask(self, order: Order, left: threading.Event) -> Verdict:
        if left.is_set():
            raise EOFError
        orders, verdicts = self._pipes
        try:
            send(orders, order)
        except BrokenPipeError:
            raise EOFError from None
        return msgspec.json.decode(receive(verdicts, order.timeout_s), type=Verdict)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        child.wait()
        for pipe in self._pipes:
            pipe.close()
        self._child = None


def _environment() -> dict[str, str]:
    """The variables that Python needs to find our modules, without settings and secrets of the deployment."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "LANG") if name in os.environ}
    # otherwise the libraries start a thread for every core
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OPENBLAS_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
    }
