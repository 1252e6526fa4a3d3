"""An event loop whose clock stands still while anything runs, and jumps to the next timer when nothing does.

For code that waits by `asyncio.sleep`, `asyncio.timeout` and `loop.call_later`: hours pass at once, and always in the
same order. Work takes no time, however busy the machine is. Two things take real time that the clock does not wait
for: bytes between sockets have SETTLING_S to arrive, and threads other than `run_in_executor`'s are not known here.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

START_S = 1_000.0
SETTLING_S = 0.001
"""Real time that the kernel has for what is on its way between two sockets of this process, before the clock jumps."""
GUARD_S = 60.0
"""Real time without any event and any timer, after which a test is considered hung."""

P = ParamSpec("P")


class _Selector(selectors.DefaultSelector):
    """Selects without waiting, and moves the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self.in_threads = 0
        """Calls that a thread works on. Their end is near, so that no time passes until then."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            return super().select(0)
        if timeout is None or self.in_threads:
            ready = super().select(GUARD_S)
            assert ready, "the test hangs: everything waits, and no timer is set"
            return ready
        # one descriptor wakes the loop up; others are sockets
        ready = super().select(SETTLING_S if len(self.get_map()) > 1 else 0)
        if not ready:
            self.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For tests in memory, and for sockets whose both ends are in this process; other processes take real time."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._clock_resolution = 1e-6  # a timer that is due must not be missed by a rounding error, after a year either

    def time(self) -> float:
        return self._clock.now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._clock.in_threads += 1
        future.add_done_callback(self._left_thread)
        return future

    def _left_thread(self, _: object) -> None:
        self._clock.in_threads -= 1


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test on a loop of its own, in virtual time. Its fixtures must not be bound to another loop."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **named))

    return run


def now_s() -> float:
    """The running loop's time."""
    return asyncio.get_running_loop().time()
