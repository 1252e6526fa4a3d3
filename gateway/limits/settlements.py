"""Sends settlements to Valkey at once, and retries them after a failure without delaying a request.

A retry is safe because settling an id twice has no effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import Plan
from storage.valkey import ConnectionLost, Valkey, forgotten

RETRY_S = 0.1
RETRY_BATCH = 500


class Settlements:
    """capacity: limit of delayed settlements. lifetime_s: how long each is kept. on_reply: called with the reply to
    each settlement that Valkey has carried out, and its plan."""

    def __init__(
        self,
        valkey: Valkey,
        capacity: int,
        lifetime_s: float,
        metrics: LimitsMetrics,
        on_reply: Callable[[Sequence[int], Plan], None],
    ) -> None:
        self._valkey = valkey
        self._lifetime_s = lifetime_s
        self._capacity = capacity
        self._metrics = metrics
        self._on_reply = on_reply
        self._delayed: deque[tuple[float, bytes, Plan]] = deque()
        """Deadline (loop time), packed command and plan of each delayed settlement."""
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def post(self, command: bytes, plan: Plan) -> None:
        """Settle in the background. Never raises."""
        self._idle.clear()
        self._send(command, plan, asyncio.get_running_loop().time() + self._lifetime_s)

    async def settle(self, command: bytes, plan: Plan) -> None:
        """Settle, and return once Valkey has answered or the settlement was delayed. Never raises.

        Cancelling the wait does not undo the settlement.
        """
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()
        self._idle.clear()
        self._send(command, plan, loop.time() + self._lifetime_s, finished)
        await finished

    async def drain(self) -> None:
        """Return once every settlement posted so far has been answered or given up."""
        await self._idle.wait()

    def retry(self) -> None:
        """Send delayed settlements again, if connected. Called on a reconnection and by a timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = asyncio.get_running_loop().time()
        for _ in range(min(RETRY_BATCH, len(self._delayed)) if self._valkey.connected else 0):
            until_s, command, plan = self._delayed.popleft()
            if until_s > now_s:
                self._send(command, plan, until_s)
            else:
                self._metrics.dropped.inc()
        self._metrics.delayed.set(len(self._delayed))
        self._after()

    def close(self) -> None:
        """Stop retries; open reservations lapse in Valkey."""
        if self._timer is not None:
            self._timer.cancel()
        self._metrics.dropped.inc(len(self._delayed))
        self._delayed.clear()
        self._metrics.delayed.set(0)

    def _send(self, command: bytes, plan: Plan, until_s: float, finished: asyncio.Future[None] | None = None) -> None:
        try:
            self._valkey.send(command, partial(self._answered, command, plan, until_s, finished))
            self._in_flight += 1
        except ConnectionLost:
            self._delay(command, plan, until_s)
            _tell(finished)

    def _answered(
        self, command: bytes, plan: Plan, until_s: float, finished: asyncio.Future[None] | None, reply: object
    ) -> None:
        self._in_flight -= 1
        if isinstance(reply, Exception):
            if forgotten(reply):
                try:
                    self._valkey.load_scripts()
                    self._send(command, plan, until_s, finished)
                    return
                except ConnectionLost:
                    pass
            self._delay(command, plan, until_s)
        elif len(reply) > 1:  # type: ignore[arg-type]
            self._on_reply(reply, plan)  # type: ignore[arg-type]
        _tell(finished)
        if not self._in_flight:
            self._after()

    def _delay(self, command: bytes, plan: Plan, until_s: float) -> None:
        if len(self._delayed) >= self._capacity:
            self._delayed.popleft()
            self._metrics.dropped.inc()
        self._delayed.append((until_s, command, plan))
        self._metrics.delayed.set(len(self._delayed))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.retry)

    def _after(self) -> None:
        if self._delayed:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.retry)
        elif not self._in_flight:
            self._idle.set()


def _tell(finished: asyncio.Future[None] | None) -> None:
    if finished is not None and not finished.done():
        finished.set_result(None)
