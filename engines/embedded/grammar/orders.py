"""Messages between the engine and a process that tries grammars, as JSON over a pipe."""

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
    """The reason why the grammar cannot be enforced; None if it can."""


def send(pipe: Connection, message: Order | Verdict) -> None:
    """Write a whole message. Raises OSError if the reader has closed the pipe."""
    pipe.send_bytes(msgspec.json.encode(message))


def receive(pipe: Connection, timeout_s: float | None = None) -> bytes:
    """The next message. Raises EOFError if the other side has closed, and TimeoutError after `timeout_s`."""
    if not pipe.poll(timeout_s):
        raise TimeoutError
    try:
        return pipe.recv_bytes()
    except OSError:  # closed in the middle of a message
        raise EOFError from None
