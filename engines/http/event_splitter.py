"""Splits an engine's response into events, for the gateway's streams and the router's probe."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator

from contracts.errors import EngineFailed
from engines.http.repeated_event import CountedEvent, CountedRun, RepeatedEvent

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Limit of one event, larger than any that an engine sends (logprobs of a long chunk)."""


class EventSplitter:
    """Splits a byte stream into the payloads of its `data:` events, in time proportional to its bytes."""

    __slots__ = ("_at_start", "_rest", "repeated")

    def __init__(self) -> None:
        self.repeated: RepeatedEvent | CountedEvent | None = None
        """The usual event, of which `runs` yields only the texts and usages. It may change between two results."""
        self._rest = bytearray()
        """The beginning of an event whose end has not arrived."""
        self._at_start = True
        """Whether a byte order mark may still arrive."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Payloads completed by `data`, in order. Raises EngineFailed if an event exceeds MAX_EVENT_BYTES."""
        for payload in self.runs(data):
            assert isinstance(payload, bytes)
            yield payload

    def runs(self, data: bytes) -> Iterable[bytes | list[bytes] | CountedRun]:
        """Like `feed`, but yields the texts of consecutive usual events as a list, and counted ones as a run."""
        if self.repeated is not None and not self._rest:
            found, end = self.repeated.run(data, 0)
            if found and end == len(data):
                return (found,)  # most reads of a stream, without a generator
        return self._runs(data)

    def _runs(self, data: bytes) -> Iterator[bytes | list[bytes] | CountedRun]:
        if self._at_start:
            data = self._without_mark(data)
        if self._rest:
            data = self._ended_by(data)
        elif data.find(b"\r") >= 0:
            # JSON never contains a raw \r, so line ends can be unified; a \r at the very end waits for its \n
            data = data.replace(b"\r\n", b"\n")
        start = 0
        while start < len(data):
            if self.repeated is not None:
                found, start = self.repeated.run(data, start)
                if found:
                    yield found
                    continue
            if (end := data.find(b"\n\n", start)) < 0:
                break
            if data.startswith(b"data: ", start) and data.find(b"\n", start, end) < 0:
                yield data[start + 6 : end]
            elif payload := _payload_of_lines(data[start:end]):
                yield payload
            start = end + 2
        if start < len(data):
            self._rest += data[start:]
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EngineFailed("The engine sent an event without an end.")

    def _without_mark(self, data: bytes) -> bytes:
        """The stream's beginning without a byte order mark; b"" while too few bytes have arrived."""
        if self._rest:
            data = bytes(self._rest) + data
            self._rest.clear()
        if len(data) < len(BOM_UTF8) and BOM_UTF8.startswith(data):
            self._rest += data
            return b""
        self._at_start = False
        return data.removeprefix(BOM_UTF8)

    def _ended_by(self, data: bytes) -> bytes:
        """The rest followed by `data`, if an event ends there; otherwise b"", after adding `data` to the rest."""
        rest = self._rest
        if data.startswith(b"\n") and rest.endswith(b"\r"):
            del rest[-1]
        searched = len(rest)
        rest += data.replace(b"\r\n", b"\n")
        if rest.find(b"\n\n", searched - 1 if searched else 0) < 0:  # the last byte may be the first half of an end
            return b""
        data = bytes(rest)
        rest.clear()
        return data


def _payload_of_lines(event: bytes) -> bytes:
    """The payload of an event with several lines, comments, `event:` or `id:` fields: its `data:` lines, joined."""
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
