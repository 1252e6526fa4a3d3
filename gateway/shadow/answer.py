"""One engine's complete response, decoded from its events, for the comparison of two engines.

One choice only; an engine's events are OpenAI's chunks, whichever API the client speaks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import decoded
from storage.storable_text import storable

MAX_REASON = 64
"""Limit of a finish reason's characters: the usual ones are words."""


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model requested. arguments: JSON, as the model wrote it."""

    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True):
    """A model's complete response."""

    text: str
    refusal: str = ""
    """The refusal, if the engine reports refusals separately."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None


class AnswerReader:
    """Reads one answer in chunks, because a long answer must not block the event loop."""

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: dict[int, list[str]] = {}
        """Calls by index: each call's name, then the chunks of its arguments."""
        self._finish_reason: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the engine's bytes. Raises EngineFailed for invalid bytes."""
        for payload in self._splitter.feed(data):
            if payload == b"[DONE]":
                continue
            try:
                for choice in decoded(payload).get("choices") or ():
                    self._choice(choice)
            except (AttributeError, TypeError, ValueError):
                raise EngineFailed("The engine sent an event of another shape.") from None

    def answer(self, text: str | None = None) -> Answer:
        """The decoded response. text: the response's text if rules have cut it; None for the model's text."""
        calls = (self._calls[index] for index in sorted(self._calls))
        return Answer(
            "".join(self._texts) if text is None else text,
            "".join(self._refusals),
            tuple(ToolCall(name, "".join(arguments)) for name, *arguments in calls),
            self._finish_reason,
        )

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        self._texts.append(str(choice.get("text") or delta.get("content") or ""))
        self._refusals.append(str(delta.get("refusal") or ""))
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            parts = self._calls.setdefault(int(call.get("index") or 0), [""])
            parts[0] += str(function.get("name") or "")
            parts.append(str(function.get("arguments") or ""))
        reason = choice.get("finish_reason")
        if reason is not None:
            self._finish_reason = storable(str(reason)[:MAX_REASON])
