"""Formats records in a journal file, so that a write cut short by a crash can be distinguished from damage.

    "SLJ" | kind (1) | payload length (4, little endian) | CRC-32 of all before it and the payload (4) | payload

A file starts with a HEADER frame, and ends with a SEAL frame if it was finished properly. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgspec

HEADER = ord("h")
OPENED = ord("o")
PLACED = ord("p")
CLOSED = ord("c")
SEAL = ord("s")
KINDS = frozenset({HEADER, OPENED, PLACED, CLOSED, SEAL})

MARK = b"SLJ"
VERSION = b"\x01"
"""Payload of the HEADER frame."""
HEAD_BYTES = 12
MAX_PAYLOAD_BYTES = 1_048_576

_PREFIX = struct.Struct("<3sBI")
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<3sBII")

Frame = tuple[int, bytes, int]
"""Kind, payload, and offset after the frame."""


class Scan(msgspec.Struct):
    """The contents of a file."""

    frames: list[Frame]
    """All readable frames, also after damage."""
    valid_bytes: int
    """Length up to the first frame that cannot be read."""
    damaged: bool
    """Whether a readable frame follows an unreadable one: its bytes were changed, and not cut by a crash."""


def encode(kind: int, payload: bytes) -> bytes:
    """Encode one frame. Raises ValueError for a payload over the readers' limit."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"journal record of {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES}")
    prefix = _PREFIX.pack(MARK, kind, len(payload))
    return prefix + _CRC.pack(zlib.crc32(payload, zlib.crc32(prefix))) + payload


def header() -> bytes:
    """The first frame of every file."""
    return encode(HEADER, VERSION)


def walk(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Frame]:
    """Yield complete, intact frames from `start` until the first other one."""
    stop = len(data) if end is None else end
    offset = start
    while offset + HEAD_BYTES <= stop:
        mark, kind, length, crc = _HEAD.unpack_from(data, offset)
        begin = offset + HEAD_BYTES
        after = begin + length
        if mark != MARK or after > stop or length > MAX_PAYLOAD_BYTES:
            return
        payload = data[begin:after]
        if zlib.crc32(payload, zlib.crc32(data[offset : offset + 8])) != crc or kind not in KINDS:
            return
        yield kind, payload, after
        offset = after


def scan(data: bytes) -> Scan:
    """Read a whole file, also past damage, and determine whether it is damaged or only cut short."""
    frames = list(walk(data))
    valid_bytes = frames[-1][2] if frames else 0
    damaged = False
    position = data.find(MARK, valid_bytes + 1)
    while position != -1:
        found = list(walk(data, position))
        if found:
            damaged = True
            frames += found
            position = found[-1][2] - 1
        position = data.find(MARK, position + 1)
    return Scan(frames, valid_bytes, damaged)
