"""Keeps the connection of a streamed answer alive while its client gets no events.

After its reservation a streamed request is silent while it waits in a queue, while its prompt is computed, and while
the model writes text that the client does not see. Proxies take a silent connection for a dead one. So after
HEARTBEAT_S without a byte the gateway sends the head, unless it has left, and a comment, which clients skip.

Until then the head waits for the first event: a failure before the head is a status, and clients retry it by
themselves. After the head it is an error event, and they do not. Most engines that fail do so at once. The gateway
tries other engines in either case.
"""

from __future__ import annotations

from contracts.phases import PhaseClock
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.wire.errors import Headers

HEARTBEAT_S = 10.0
"""Longest silence, up to two sweeps of `IdleTimeouts`: well below the 30 s that many proxies wait at least."""


class Heartbeat:
    """The heartbeat of one streamed answer. Its time begins when it is created."""

    __slots__ = ("_clock", "_quiet_since_s", "_response", "headers")

    def __init__(self, response: ResponseWriter, clock: PhaseClock, now_s: float) -> None:
        """clock: the request's. now_s: a reading of `time.monotonic`, like in `sweep`."""
        self._response = response
        self._clock = clock
        self._quiet_since_s = now_s
        self.headers: Headers = []
        """Headers for a head that leaves before the first event; may grow until then."""

    def sweep(self, now_s: float) -> None:
        """Send a comment if nothing was sent for HEARTBEAT_S."""
        response = self._response
        if response.written:
            response.written = False
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s >= HEARTBEAT_S and not response.full:
            self._quiet_since_s = now_s
            if not response.started:
                response.headers += [*self.headers, server_timing(self._clock)]
                response.start_stream()
            response.heartbeat()
