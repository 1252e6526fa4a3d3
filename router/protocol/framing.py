"""Frames on the connection between a gateway and the router: four bytes of length, big-endian, then one message."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

_HEAD_BYTES = 4


class FrameTooLongError(ValueError):
    """The other end announced a longer frame than it may send, so it is another program or another version."""


def framed(message: Message) -> bytes:
    """The message as a frame."""
    payload = message.SerializeToString()
    return len(payload).to_bytes(_HEAD_BYTES, "big") + payload


class FrameReader:
    """Cuts arriving bytes, in any chunks, into payloads. limit_bytes: the longest accepted payload; may be changed."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._kept = bytearray()
        self._wanted = _HEAD_BYTES
        """Bytes needed before the next cut, because an earlier check would make a long frame's cost quadratic."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that `data` completes, in order. The caller must exhaust the iterator before it feeds more.

        Payloads are cut one by one, so that the reader of the first may change the limit for the second. Raises
        FrameTooLongError, after which the connection is unusable.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted:
                return
            data = bytes(self._kept)
            self._kept.clear()
        at = 0
        while True:
            wanted = _HEAD_BYTES
            if len(data) - at >= _HEAD_BYTES:
                length = int.from_bytes(data[at : at + _HEAD_BYTES], "big")
                if length > self.limit_bytes:
                    raise FrameTooLongError(f"a frame of {length:,} bytes; the longest allowed is {self.limit_bytes:,}")
                wanted += length
            if len(data) - at < wanted:
                break
            yield data[at + _HEAD_BYTES : at + wanted]
            at += wanted
        self._kept += data[at:]
        self._wanted = wanted
