"""Keeps the connection of a streamed answer alive while nothing comes for its client.

From its reservation on a streamed request is silent for as long as it waits in a queue, its prompt is computed, or the
model writes what the client does not see. Proxies take a silent connection for a dead one. So after HEARTBEAT_S without
a byte the head leaves, unless it has left, and a comment, which clients of event streams pass over.

Until then the head waits for the first event: a failure before it is a status, which clients repeat by themselves.
Behind the head it is an error event, and they do not. Engines that fail do so at once, as a rule; other engines are
tried in either case.
"""

from __future__ import annotations

from contracts.phases import PhaseClock
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.wire.errors import Headers

HEARTBEAT_S = 10.0
"""Longest silence, up to two sweeps of `IdleTimeouts`: well below the 30 s that many proxies wait at least."""


class Heartbeat:
    """Of one streamed answer. Counts from the moment it is made."""

    __slots__ = ("_clock", "_quiet_since_s", "_response", "headers")

    def __init__(self, response: ResponseWriter, clock: PhaseClock, now_s: float) -> None:
        """clock: the request's. now_s: a reading of `time.monotonic`, as of `sweep`."""
        self._response = response
        self._clock = clock
        self._quiet_since_s = now_s
        self.headers: Headers = []
        """Of an answer whose head leaves before the first event; may grow until then."""

    def sweep(self, now_s: float) -> None:
        """Send a comment where nothing was sent for too long."""
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
