"""Writes every event of the core to a file, so that a day can be replayed: the core's decisions depend only on events.

The file consists of MessagePack records, each after its length (4 bytes, big endian): [time, kind, event, decisions].
Writes are buffered for a second and stop at a size limit. A log that cannot be written is closed, and the router
continues without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from contracts.errors import ConfigError
from router.config import RouterConfig
from router.core.decisions import Decision, Disconnect, Granted, PollNow, ProbeGeneration, Refused, Welcomed
from router.core.dispatcher import Dispatcher
from router.core.events import (
    Acquire,
    Cancel,
    DrainReplica,
    Event,
    FirstToken,
    GatewayConnected,
    GatewayDisconnected,
    GenerationProbed,
    KvBatch,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.policies import registry

logger = logging.getLogger(__name__)
KINDS: tuple[type[Event], ...] = (
    GatewayConnected, GatewayDisconnected, Acquire, Cancel, FirstToken, Release, StatePublished, ReplicaPolled, Tick,
    KvBatch, GenerationProbed, DrainReplica,
)  # fmt: skip
"""The index of a kind is its number in the file, so new kinds may only be appended."""
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LENGTH_BYTES = 4
BUFFER_BYTES = 1 << 20
FLUSH_S = 1.0


class EventLog:
    """One file, which always starts empty; the previous file is kept as `.1`. limit_bytes: size at which the log stops.
    Raises ConfigError if the file cannot be written."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        try:
            if Path(path).is_file() and Path(path).stat().st_size:
                Path(path).replace(path + ".1")
            self._file: BinaryIO | None = Path(path).open("wb", buffering=BUFFER_BYTES)  # noqa: SIM115  kept open
        except OSError as error:
            raise ConfigError(
                f"router.event_log: cannot write {path} ({error.strerror}); give another file or none",
                param="router.event_log",
            ) from None
        self._left = limit_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._flushed_at = 0.0

    def write(self, now: float, event: Event, decisions: list[Decision]) -> None:
        """Append one event with its decisions. Never raises."""
        if self._file is None:
            return
        record = self._encoder.encode((now, _NUMBERS[type(event)], event, list(map(summary, decisions))))
        self._left -= len(record) + LENGTH_BYTES
        try:
            if self._left < 0:
                logger.warning("event log ends here: size limit reached")
                self.close()
                return
            self._file.write(len(record).to_bytes(LENGTH_BYTES, "big") + record)
            if now - self._flushed_at >= FLUSH_S:
                # replicas are polled every second, so even an idle router gets here
                self._file.flush()
                self._flushed_at = now
        except OSError as error:
            logger.warning("event log ends here: cannot be written (%s)", error)
            self.close()

    def close(self) -> None:
        """Write the buffered records and close the file. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Replayed(msgspec.Struct, frozen=True):
    """One event of a log with the logged and the replayed decisions."""

    number: int
    now: float
    event: Event
    logged: list[str]
    decided: list[str]


def replay(path: Path, config: RouterConfig) -> Iterator[Replayed]:
    """Feed a log to a new core with these settings. A record that a crash truncated ends the replay."""
    dispatcher = Dispatcher(config, registry.create(config.policy))
    for number, (now, event, logged) in enumerate(read(path)):
        yield Replayed(number, now, event, logged, list(map(summary, dispatcher.handle(event, now))))


def read(path: Path) -> Iterator[tuple[float, Event, list[str]]]:
    """The records of a log. Raises ValueError for a file that is not a log."""
    decoder = msgspec.msgpack.Decoder(tuple[float, int, msgspec.Raw, list[str]])
    decoders = [msgspec.msgpack.Decoder(kind) for kind in KINDS]
    with path.open("rb") as file:
        any_read = False
        while head := file.read(LENGTH_BYTES):
            length = int.from_bytes(head, "big")
            record = file.read(length) if len(head) == LENGTH_BYTES else b""
            if len(record) < length or not length:
                if not any_read:
                    raise ValueError("it does not begin with an event")
                return
            any_read = True
            now, kind, event, decisions = decoder.decode(record)
            yield now, decoders[kind].decode(event), decisions


def summary(decision: Decision) -> str:
    """A decision as a short text, for comparison."""
    if isinstance(decision, Granted):
        return f"granted {decision.lease.lease_id} {decision.lease.engine.replica_id} {decision.lease.queued_s:.6f}"
    if isinstance(decision, Refused):
        return f"refused {decision.lease_id} {decision.code}"
    if isinstance(decision, Welcomed):
        return f"welcomed {decision.connection} {decision.version}"
    if isinstance(decision, Disconnect):
        return f"disconnected {decision.connection}"
    if isinstance(decision, PollNow):
        return f"probe {decision.replica_id}"
    if isinstance(decision, ProbeGeneration):
        return f"probe a generation of {decision.replica_id}"
    return f"replay kv events of {decision.replica_id} from {decision.first}"


def outcome(decision: str) -> str:
    """The result in a decision's text, for counting: the granted replica or the refusal's code; empty for neither."""
    kind, *rest = decision.split()
    if kind == "granted":
        return f"granted {rest[1]}"
    return f"refused {rest[1]}" if kind == "refused" else ""
