"""Messages between the engine and a process that tries grammars: four bytes of length, then so many bytes of JSON."""

from __future__ import annotations

import os
import select
import struct
import time

import msgspec

_LENGTH = struct.Struct(">I")


class Order(msgspec.Struct, frozen=True):
    """A grammar for the trial process to compile."""

    text: str
    """A grammar in llguidance's own form."""
    timeout_s: float


class Verdict(msgspec.Struct, frozen=True):
    """What the trial process found."""

    fault: str | None = None
    """Why the grammar cannot be enforced; None: it can."""


def write_frame(descriptor: int, message: msgspec.Struct) -> None:
    """Write a whole message. Raises OSError when nobody reads it any more."""
    body = msgspec.json.encode(message)
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int, timeout_s: float | None = None) -> bytes:
    """The next message. Raises EOFError when the other side is gone, TimeoutError when it takes too long."""
    due_s = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size, due_s))
    return _read(descriptor, length, due_s)


def _read(descriptor: int, size: int, due_s: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(descriptor, due_s)
        part = os.read(descriptor, size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _wait(descriptor: int, due_s: float | None) -> None:
    if due_s is None:
        return
    # poll, not select: the engine has more than 1,024 descriptors under load
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(due_s - time.monotonic(), 0) * 1000):
        raise TimeoutError
