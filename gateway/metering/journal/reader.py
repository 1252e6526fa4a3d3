"""Reads durable closed records back from the segments, for the shipper.

The files are the queue, so a database that is unreachable for a day costs disk space and no memory.
"""

from __future__ import annotations

import logging
import os

import msgspec

from gateway.metering.journal import frames
from gateway.metering.journal.folder import JournalFolder, Position
from gateway.metering.journal.records import Closed
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 262_144
_LARGEST_FRAME_BYTES = frames.HEAD_BYTES + frames.MAX_PAYLOAD_BYTES
_decode = msgspec.msgpack.Decoder(Closed).decode


class SegmentReader:
    """Reads the segments. Used by one thread at a time."""

    def __init__(self, folder: JournalFolder, metrics: MeteringMetrics) -> None:
        self._folder = folder
        self._metrics = metrics
        self._file: tuple[int, int] | None = None
        self.damaged: set[int] = set()
        """Segments with an unreadable record, which are set aside instead of deleted."""

    def read(
        self, durable: list[tuple[int, int]], position: Position, limit_rows: int
    ) -> tuple[list[Closed], Position]:
        """Up to `limit_rows` rows after `position`, and the position after the last one read. Raises OSError."""
        rows: list[Closed] = []
        number, offset = position
        for segment, length in durable:
            if segment < number:
                continue
            if segment > number:
                number, offset = segment, 0
            while offset < length and len(rows) < limit_rows:
                offset = self._read_some(segment, offset, length, limit_rows, rows)
            if offset < length:
                break
        return rows, (number, offset)

    def close(self) -> None:
        """Close the file being read."""
        if self._file is not None:
            os.close(self._file[1])
            self._file = None

    def _read_some(self, segment: int, offset: int, length: int, limit_rows: int, rows: list[Closed]) -> int:
        """Append rows of one chunk. Returns the offset after the last frame used."""
        descriptor = self._open(segment)
        chunk = os.pread(descriptor, min(length - offset, _CHUNK_BYTES), offset)
        used = self._take(chunk, segment, limit_rows, rows)
        if used == 0 and length - offset > len(chunk):
            chunk = os.pread(descriptor, min(length - offset, _LARGEST_FRAME_BYTES), offset)
            used = self._take(chunk, segment, limit_rows, rows)
        if used == 0:
            return self._skip(descriptor, segment, offset, length)
        return offset + used

    def _take(self, chunk: bytes, segment: int, limit_rows: int, rows: list[Closed]) -> int:
        used = 0
        for kind, payload, after in frames.walk(chunk):
            used = after
            if kind == frames.CLOSED:
                try:
                    rows.append(_decode(payload))
                except msgspec.MsgspecError as error:
                    self._report(segment, f"a row does not decode: {error}")
                if len(rows) == limit_rows:
                    break
        return used

    def _skip(self, descriptor: int, segment: int, offset: int, length: int) -> int:
        """Offset of the next readable frame after damage, or the end."""
        self._report(segment, f"unreadable at byte {offset}")
        rest = os.pread(descriptor, length - offset, offset)
        at = rest.find(frames.MARK, 1)
        while at != -1:
            if next(frames.walk(rest, at), None) is not None:
                return offset + at
            at = rest.find(frames.MARK, at + 1)
        return length

    def _report(self, segment: int, problem: str) -> None:
        logger.error("journal %s: %s; a row may be missing from the ledger", self._folder.segment(segment), problem)
        if segment not in self.damaged:
            self.damaged.add(segment)
            self._metrics.journal_damaged.inc()

    def _open(self, segment: int) -> int:
        if self._file is None or self._file[0] != segment:
            self.close()
            self._file = segment, os.open(self._folder.segment(segment), os.O_RDONLY)
        return self._file[1]
