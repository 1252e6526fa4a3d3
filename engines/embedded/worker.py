"""The thread that runs the engine, and its communication with the event loop.

Commands arrive in a queue, which is read between steps and between the blocks of a long step. The output of a step
leaves in one call, for any number of tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from contracts.errors import ConfigError, EngineFailed
from engines.embedded.engine import Engine
from engines.embedded.output import Delta
from engines.embedded.request import Request

logger = logging.getLogger(__name__)
Command = Callable[[Engine], list[Delta]]
ArgumentT = TypeVar("ArgumentT")


class EngineWorker:
    """Owns the engine's thread. All methods are called on the event loop."""

    def __init__(
        self,
        build: Callable[[], Engine],
        ready: Callable[[Engine], None],
        deliver: Callable[[list[Delta]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """build: creates the engine, in the thread. ready, deliver, failed: called on the event loop."""
        self._build = build
        self._ready = ready
        self._deliver = deliver
        self._failed = failed
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        """Set when the thread runs no more commands."""
        self._stopping = False
        """Whether a stop was requested; set in the thread."""

    def start(self) -> None:
        """Start the thread, which calls `ready` or `failed`."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request for the next step."""
        received_s = time.monotonic()

        def command(engine: Engine) -> list[Delta]:
            engine.submit(request, received_s)
            return []

        self._commands.put(command)

    def abort(self, rid: str, *, prefix: bool = False) -> None:
        """End requests before the next step, or within a long step; see `Engine.abort`."""
        self._commands.put(lambda engine: engine.abort(rid, prefix=prefix))

    async def ask(self, question: Callable[[Engine], ArgumentT]) -> ArgumentT:
        """Call `question` with the engine between two steps, or between the blocks of a step, and return its result.

        Raises EngineFailed if the thread ends before.
        """
        answer: asyncio.Future[ArgumentT] = asyncio.get_running_loop().create_future()

        def tell(value: ArgumentT) -> None:
            # the caller may have been cancelled
            if not answer.done():
                answer.set_result(value)

        def command(engine: Engine) -> list[Delta]:
            self._call(tell, question(engine))
            return []

        self._commands.put(command)
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not answer.done():
            raise EngineFailed("The engine has stopped.")
        return answer.result()

    async def stop(self) -> None:
        """End the thread after its current step."""
        self._commands.put(None)
        if self._thread.ident is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        try:
            engine = self._build()
            self._call(self._ready, engine)
            with contextlib.closing(engine):
                while self._step(engine):
                    pass
        # after any error, notify the event loop that its requests will not be answered
        except ConfigError as error:  # one sentence, which the process prints when it ends
            self._call(self._failed, error)
        except BaseException as error:
            logger.exception("engine thread ended")
            self._call(self._failed, error)
        finally:
            self._call(lambda _: self._ended.set(), None)

    def _step(self, engine: Engine) -> bool:
        """Run commands, then one step; sleep while there is nothing to do. Returns False if a stop was requested."""
        self._poll_commands(engine, wait=not engine.busy)
        if self._stopping:
            return False
        self._tell(engine.step(functools.partial(self._poll_commands, engine)))
        return True

    def _poll_commands(self, engine: Engine, *, wait: bool = False) -> None:
        """Run the queued commands, and deliver their deltas at once, because a client that aborts a request waits for
        its end. wait: block until a command arrives."""
        deltas: list[Delta] = []
        while not self._stopping and (wait or not self._commands.empty()):
            command = self._commands.get()
            if command is None:
                self._stopping = True
            else:
                deltas += command(engine)
            wait = False
        self._tell(deltas)

    def _tell(self, deltas: list[Delta]) -> None:
        if deltas:
            self._call(self._deliver, deltas)

    def _call(self, function: Callable[[ArgumentT], None], argument: ArgumentT) -> None:
        assert self._loop is not None
        # a closed loop means that the process is shutting down
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, argument)
