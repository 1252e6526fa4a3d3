"""Tool calls in a model's output, found while the text arrives."""

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
    """More of a call's arguments, which together are JSON text."""

    index: int
    text: str


Event = Text | CallStart | CallArguments


class CallParser(Protocol):
    """Reads one choice. The events' content does not depend on how the text is chunked."""

    def push(self, text: str) -> list[Event]:
        """More output."""
        ...

    def flush(self) -> list[Event]:
        """The output is over; text that looked like a call and was none is returned as text."""
        ...


def new_call_id() -> str:
    """An id in OpenAI's form."""
    return f"call_{uuid.uuid4().hex[:24]}"
