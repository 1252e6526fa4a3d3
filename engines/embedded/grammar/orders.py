"""Messages between the engine and a process that tries grammars: JSON over a pipe."""

from __future__ import annotations

from multiprocessing.connection import Connection

import msgspec


class Order(msgspec.Struct, frozen=True):
    """A grammar for the trial process to compile."""

    text: str
    """A grammar in llguidance's own form."""
    timeout_s: float


class Verdict(msgspec.Struct, frozen=True):
    """The result of the trial process."""

    fault: str | None = None
    """The reason the grammar cannot be enforced; None: it can."""


def send(pipe: Connection, message: Order | Verdict) -> None:
    """Write a whole message. Raises OSError when the reader is gone."""
    pipe.send_bytes(msgspec.json.encode(message))


def receive(pipe: Connection, timeout_s: float | None = None) -> bytes:
    """The next message. Raises EOFError when the other side is gone, TimeoutError when it takes too long."""
    if not pipe.poll(timeout_s):
        raise TimeoutError
    try:
        return pipe.recv_bytes()
    except OSError:  # gone in the middle of a message
        raise EOFError from None
