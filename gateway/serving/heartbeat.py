"""Keeps the connection of a streamed answer alive while its client gets no events.

After its reservation, a streamed request is silent while it waits in a queue, while its prompt is computed, and while
the model writes text that the client does not see. Proxies close silent connections. So after HEARTBEAT_S without a
byte, the gateway sends the head, unless it has been sent, and a comment, which clients skip.

Until then, the head waits for the first event. Clients retry a failure before the head, which is a status, but not a
failure after it, which is an error event. Most engines that fail do so at once. The gateway always tries other engines.
"""

from __future__ import annotations

from contracts.phases import PhaseClock
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.wire.errors import Headers

HEARTBEAT_S = 10.0
"""Longest silence, plus up to two sweeps of `IdleTimeouts`. Many proxies wait for at least 30 s."""


class Heartbeat:
    """The heartbeat of one streamed answer. Its time starts when it is created."""

    __slots__ = ("_clock", "_quiet_since_s", "_response", "headers")

    def __init__(self, response: ResponseWriter, clock: PhaseClock, now_s: float) -> None:
        """clock: the request's clock. now_s: `time.monotonic()`, as in `sweep`."""
        self._response = response
        self._clock = clock
        self._quiet_since_s = now_s
        self.headers: Headers = []
        """Headers for a head that is sent before the first event; the list may grow until then."""

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
