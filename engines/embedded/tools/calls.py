"""Tool calls in a model's output, as they are found while the text arrives."""

from __future__ import annotations

import uuid
from typing import Protocol

import msgspec


class Text(msgspec.Struct, frozen=True):
    """Text for the user."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """A call begins; its arguments follow."""

    index: int
    """Number of the call in its choice, from 0."""
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of a call's arguments, which all together are JSON text."""

    index: int
    text: str


Event = Text | CallStart | CallArguments


class CallParser(Protocol):
    """Reads one choice. What the events say does not depend on how the text is cut into pieces."""

    def push(self, text: str) -> list[Event]:
        """More output."""
        ...

    def flush(self) -> list[Event]:
        """The output is over; what looked like a call and was none is given back as text."""
        ...


def new_call_id() -> str:
    """An id as OpenAI's look."""
    return f"call_{uuid.uuid4().hex[:24]}"
