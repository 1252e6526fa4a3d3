"""Receives engines' KV events over ZeroMQ and passes them to the core. The rules are in `core/kv_mirror.py`.

The event loop reads one SUB and one DEALER socket per replica. An absent publisher costs nothing: ZeroMQ connects when
it starts. This module needs pyzmq, which only deployments with `kv_events` in their desired state must have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contracts.errors import ConfigError
from router.core.events import KvBatch
from router.kv_link import KvLink

logger = logging.getLogger(__name__)

END_OF_REPLAY = b"\xff" * 8
HIGH_WATER_MESSAGES = 100_000
BURST = 256
"""Most messages that are read before other tasks get a turn of the event loop."""
BURST_BYTES = 1 << 20
"""Bytes that are read before such a turn; the message that exceeds this is still read."""
MAX_MESSAGE_BYTES = 16 << 20
"""Limit of a frame; a message contains one step. The largest come from SGLang with pages of one token, with 140 bytes
each: 2.3 MB if a step computes 16,384 tokens, its maximum, and 14 MB if a step restores a prompt of 100,000 tokens from
host memory. For a larger frame, ZeroMQ closes the connection before it allocates memory."""


class KvSubscriptions:
    """The subscriptions to all replicas. deliver: receives each message, on the event loop."""

    def __init__(self, deliver: Callable[[KvBatch], None]) -> None:
        self._deliver = deliver
        self._context: Any = None
        self._followed: dict[str, _Subscription] = {}

    def follow(self, endpoints: Mapping[str, tuple[str, str]]) -> None:
        """Set the (events, replay) endpoints by replica. Raises ConfigError if pyzmq is not installed."""
        changed = [known for known, each in self._followed.items() if endpoints.get(known) != each.endpoints]
        for replica_id in changed:
            self._followed.pop(replica_id).close()
        for replica_id, (events, replay) in endpoints.items():
            if replica_id not in self._followed:
                self._followed[replica_id] = _Subscription(self._zmq(), replica_id, events, replay, self._deliver)

    def ask_replay(self, replica_id: str, first: int) -> None:
        """Request the engine's messages from number `first` on again, if the engine can repeat them."""
        subscription = self._followed.get(replica_id)
        if subscription is not None:
            subscription.ask_replay(first)

    def stop(self) -> None:
        for subscription in self._followed.values():
            subscription.close()
        self._followed.clear()
        if self._context is not None:
            self._context.term()
            self._context = None

    def _zmq(self) -> Any:
        if self._context is None:
            try:
                import zmq
            except ImportError:
                raise ConfigError(
                    "pools[].replicas[].kv_events needs pyzmq: install slipstream[engine], or leave kv_events empty",
                    param="pools[].replicas[].kv_events",
                ) from None
            self._context = zmq.Context()
        return self._context


class _Subscription:
    """One replica's two sockets. ZeroMQ's descriptor is edge-triggered: each wake-up must read all available data."""

    def __init__(
        self, context: Any, replica_id: str, events: str, replay: str, deliver: Callable[[KvBatch], None]
    ) -> None:
        import zmq

        self.endpoints = (events, replay)
        self._replica_id = replica_id
        self._deliver = deliver
        self._again = zmq.Again
        self._no_wait = zmq.NOBLOCK
        self._read_in_turn = False
        """This turn of the loop has read its burst, or the next one will go on with it."""
        self._loop = asyncio.get_running_loop()
        self._live = context.socket(zmq.SUB)
        self._live.set_hwm(HIGH_WATER_MESSAGES)
        self._live.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._live.subscribe(b"")
        self._replay: Any = None
        self._links = [KvLink(self._live, events)]
        if replay:
            self._replay = context.socket(zmq.DEALER)
            self._replay.set_hwm(HIGH_WATER_MESSAGES)
            self._replay.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
            self._links.append(KvLink(self._replay, replay))
        for link in self._links:
            self._loop.add_reader(link.socket.getsockopt(zmq.FD), self._read)
        self._loop.call_soon(self._read)

    def ask_replay(self, first: int) -> None:
        if self._replay is None:
            logger.info(
                "replica %s: KV events from %d on missed, and the engine cannot repeat them", self._replica_id, first
            )
            return
        try:
            self._replay.send_multipart((b"", first.to_bytes(8, "big")), self._no_wait)
        except self._again:
            logger.info("replica %s refuses a request for a replay now", self._replica_id)

    def close(self) -> None:
        import zmq

        for link in self._links:
            self._loop.remove_reader(link.socket.getsockopt(zmq.FD))
            link.close()
        self._links = []

    def _read(self) -> None:
        if not self._read_in_turn:  # the descriptor may wake the loop again while a burst goes on: still one a turn
            self._go_on()

    def _go_on(self) -> None:
        self._read_in_turn = True
        drained = False
        try:
            drained = self._read_burst()
        finally:
            # on after an error too, because the descriptor does not signal data that is already there
            self._loop.call_soon(self._rest if drained else self._go_on)

    def _rest(self) -> None:
        self._read_in_turn = False

    def _read_burst(self) -> bool:
        """Read a burst of messages. Returns whether all available data was read."""
        left, left_bytes = BURST, BURST_BYTES
        for link in self._links:
            while left > 0 and left_bytes > 0:
                try:
                    frames = link.socket.recv_multipart(self._no_wait)
                except self._again:
                    break
                left -= 1
                left_bytes -= sum(map(len, frames))
                self._hand_over(frames, repeated=link.socket is self._replay)
        return left > 0 and left_bytes > 0

    def _hand_over(self, frames: Sequence[bytes], repeated: bool) -> None:
        """Pass on one message. A defect of ours must cost only this message, not later ones."""
        if (message := numbered(frames)) is None:
            return
        try:
            self._deliver(KvBatch(self._replica_id, *message, repeated))
        except Exception:
            logger.exception("replica %s: KV events %d could not be applied", self._replica_id, message[0])


def numbered(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """A message's number and payload; None for the end of a replay, and for data that is not a message.

    The frames of a live message are topic, number, payload. A repeated message begins with an empty frame, after which
    vLLM keeps the topic and SGLang does not.
    """
    if len(frames) not in (3, 4) or len(frames[-2]) != 8 or frames[-2] == END_OF_REPLAY:
        return None
    return int.from_bytes(frames[-2], "big"), frames[-1]
