"""Events of tool calls in a model's output, found while the text arrives."""

from __future__ import annotations

import uuid
from typing import Protocol

import msgspec


class Text(msgspec.Struct, frozen=True):
    """Text for the user."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """The beginning of a call, whose arguments follow."""

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
    """Parses one choice. The events' content does not depend on how the text is chunked."""

    def push(self, text: str) -> list[Event]:
        """Process more output."""
        ...

    def flush(self) -> list[Event]:
        """End the output. Text that looked like a call but was none is returned as text."""
        ...


def new_call_id() -> str:
    """A new id in OpenAI's form."""
    return f"call_{uuid.uuid4().hex[:24]}"
