"""Reads an earlier run's journal folder: its open attempts, and how far its records can be trusted.

The order of the files does not matter: an attempt is open if any file opens it and no file closes it. (After a disk
error, a record may be in the abandoned file and in the next one.)
"""

from __future__ import annotations

import logging
import os

import msgspec

from contracts.errors import ConfigError
from gateway.metering.journal import frames
from gateway.metering.journal.folder import JournalFolder, Position
from gateway.metering.journal.records import AttemptKey, Closed, Opened, Placed
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)


class LeftOpen(msgspec.Struct, frozen=True):
    """An attempt without an end. placed: None if no engine was reached."""

    opened: Opened
    placed: Placed | None


class Replay(msgspec.Struct):
    """The contents of the folder."""

    lengths: dict[int, int]
    """Readable bytes of each intact segment."""
    left_open: dict[AttemptKey, LeftOpen]
    unshipped: int
    """Number of closed records after the shipped position, including those of `salvaged`."""
    salvaged: list[bytes]
    """CLOSED payloads of damaged segments, whose files are about to be set aside."""
    damaged: list[int]
    """Numbers of the damaged segments."""


class _Key(msgspec.Struct, array_like=True, gc=False):
    request_id: str
    attempt: int


class _ClosedKey(msgspec.Struct, array_like=True, gc=False):
    """The first field of a Closed, without the cost of the rest."""

    opened: _Key


_decode_opened = msgspec.msgpack.Decoder(Opened).decode
_decode_placed = msgspec.msgpack.Decoder(Placed).decode
_decode_closed = msgspec.msgpack.Decoder(Closed).decode
_decode_closed_key = msgspec.msgpack.Decoder(_ClosedKey).decode


def replay(folder: JournalFolder, metrics: MeteringMetrics) -> Replay:
    """Read every segment, cut tails that a crash tore, and report damage.

    Raises ConfigError if a file cannot be read or was written by a newer version.
    """
    result = Replay({}, {}, 0, [], [])
    opened: dict[AttemptKey, Opened] = {}
    placed: dict[AttemptKey, Placed] = {}
    shipped = folder.shipped()
    for number in folder.segments():
        _read_segment(folder, number, shipped, result, opened, placed, metrics)
    _forget_closed(folder, result, opened, placed)
    for key, record in opened.items():
        result.left_open[key] = LeftOpen(record, placed.pop(key, None))
    for orphan in placed.values():
        metrics.journal_orphans.inc()
        logger.error("journal %s: %s was placed, but the record that opened it is lost", folder.path, orphan)
    return result


def _read_segment(
    folder: JournalFolder,
    number: int,
    shipped: Position,
    result: Replay,
    opened: dict[AttemptKey, Opened],
    placed: dict[AttemptKey, Placed],
    metrics: MeteringMetrics,
) -> None:
    path = folder.segment(number)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the journal: {error.strerror}; usage in it is not in the ledger"
        ) from None
    found = frames.scan(data)
    damaged = found.damaged
    closed: list[bytes] = []
    unshipped = 0
    for kind, payload, after in found.frames:
        try:
            if kind == frames.CLOSED:
                record = _decode_closed(payload)
                opened.pop(record.key, None)
                placed.pop(record.key, None)
                closed.append(payload)
                unshipped += (number, after) > shipped
            elif kind == frames.OPENED:
                opening = _decode_opened(payload)
                opened[opening.key] = opening
            elif kind == frames.PLACED:
                placing = _decode_placed(payload)
                placed[placing.key] = placing
            elif kind == frames.HEADER and payload != frames.VERSION:
                raise ConfigError(f"{path}: written by a newer version of Slipstream; start that one to empty it")
        except msgspec.MsgspecError:
            logger.exception("journal %s: the record before byte %d does not decode", path, after)
            damaged = True
    if damaged:
        metrics.journal_damaged.inc()
        logger.error(
            "journal %s: damaged at byte %d; everything readable is kept, the file is set aside",
            path,
            found.valid_bytes,
        )
        result.damaged.append(number)
        result.salvaged += closed
        result.unshipped += len(closed)
        return
    if found.valid_bytes < len(data):
        metrics.journal_torn.inc()
        logger.warning("journal %s: cut %d bytes that a crash left half written", path, len(data) - found.valid_bytes)
        os.truncate(path, found.valid_bytes)
    result.lengths[number] = found.valid_bytes
    result.unshipped += unshipped


def _forget_closed(
    folder: JournalFolder, result: Replay, opened: dict[AttemptKey, Opened], placed: dict[AttemptKey, Placed]
) -> None:
    """Drop attempts that were closed in a file before the one that opens them (again). Only needed if one is open."""
    if not opened and not placed:
        return
    payloads = list(result.salvaged)
    for number in result.lengths:
        data = folder.segment(number).read_bytes()
        payloads += [payload for kind, payload, _ in frames.walk(data) if kind == frames.CLOSED]
    for payload in payloads:
        key = _decode_closed_key(payload).opened
        opened.pop((key.request_id, key.attempt), None)
        placed.pop((key.request_id, key.attempt), None)
