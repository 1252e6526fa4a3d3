"""A ZeroMQ socket that reconnects even if ZeroMQ gives up an endpoint.

ZeroMQ reconnects by itself after a connection is lost, but not after it closed one because of the received data: a
message that is too large, or data that is not ZeroMQ. A publisher that sent such data once would not be heard again
until the router restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

AGAIN_AFTER_S = 1.0
"""Pause before reconnecting, so that a publisher that repeats such data costs one connection a second."""


class KvLink:
    """A link that stays connected until `close`. socket: not connected yet. endpoint: the address to connect to."""

    def __init__(self, socket: Any, endpoint: str) -> None:
        import zmq

        self.socket = socket
        self._endpoint = endpoint
        self._zmq: Any = zmq
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.TimerHandle | None = None
        self._monitor = socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_CONNECT_DELAYED
        )
        self._loop.add_reader(self._monitor.getsockopt(zmq.FD), self._watch)
        socket.connect(endpoint)
        self._loop.call_soon(self._watch)

    def close(self) -> None:
        self._wait_no_more()
        self._loop.remove_reader(self._monitor.getsockopt(self._zmq.FD))
        self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=0)

    def _watch(self) -> None:
        """Process monitor events: after a lost connection, ZeroMQ announces a retry if it makes one."""
        while not self.socket.closed:
            try:
                event, _ = self._monitor.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            self._wait_no_more()
            if int.from_bytes(event[:2], "little") == self._zmq.EVENT_DISCONNECTED:
                self._due = self._loop.call_later(AGAIN_AFTER_S, self._connect_anew)

    def _wait_no_more(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _connect_anew(self) -> None:
        with contextlib.suppress(self._zmq.ZMQError):  # ZeroMQ may have dropped the endpoint already
            self.socket.disconnect(self._endpoint)  # otherwise, connecting again would do nothing
        self.socket.connect(self._endpoint)
