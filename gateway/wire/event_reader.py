"""Reads the events of one attempt for formats that rebuild the response: a whole chat, a response or a message.

It recognizes usual events, which only extend a text, by their bytes, and decodes all others.
"""

from __future__ import annotations

from typing import Any

from contracts.errors import EngineFailed, SlipstreamError
from engines.http.event_splitter import EventSplitter
from engines.http.repeated_event import CountedRun
from gateway.wire.chunk import (
    LESSONS,
    ReadError,
    UnreadableEvent,
    created_of,
    decoded,
    error_in,
    has_text,
    learned,
    require_asked,
)
from gateway.wire.format import Transcoder
from gateway.wire.usage_tracker import UsageTracker


class EventReader(Transcoder):
    """State of one attempt. A subclass builds the answer from choices and from the texts of usual events."""

    satisfied = False
    """Whether the response was cut; otherwise, the client gets all of the engine's output."""

    def __init__(self, usage: UsageTracker, read_error: ReadError, choices: int = 1, lessons: int = LESSONS) -> None:
        """usage: receives every event. read_error: the dialect's `Driver.error`. lessons: how many usual events may be
        learned; 0 for answers that need more of each event than its text."""
        self._usage = usage
        self._read_error = read_error
        self._asked_choices = choices
        self._lessons = lessons
        self._splitter = EventSplitter()
        self._out: list[bytes] = []
        """Client bytes that may be sent."""
        self._created = 0
        """Start of the response, Unix time in seconds; 0 before an event with a time."""
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None

    def cut(self) -> None:
        self.satisfied = not self.finished
        self._splitter.repeated = None

    def feed(self, data: bytes) -> bytes:
        """Raises UnreadableEvent."""
        try:
            for payload in self._splitter.runs(data):
                if isinstance(payload, list):
                    self.events += len(payload)
                    self._usage.texts(payload)
                    self._extend(payload)
                elif isinstance(payload, CountedRun):
                    self.events += len(payload.texts)
                    self._usage.counted(payload.usages)
                    self._extend(payload.texts)
                elif payload == b"[DONE]":
                    self._ended()
                else:
                    self._unusual(payload)
        except EngineFailed as failure:
            raise UnreadableEvent(failure, self._taken()) from None
        return self._taken() if self._out else b""

    def _unusual(self, payload: bytes) -> None:
        self._splitter.repeated = None
        chunk = decoded(payload)
        self.error = self.error or error_in(chunk, self._read_error)
        if self.error is not None:
            return
        require_asked(chunk, self._asked_choices)
        self._usage.chunk(chunk)
        if not self._created:
            self._created = created_of(chunk)
        if not self.events:
            self._begin(chunk)
        self.events += 1
        if self.satisfied or self.finished:
            return
        self.text_seen = self.text_seen or has_text(chunk)
        for choice in chunk.get("choices") or ():
            self._add(choice)
        if self._lessons and self.text_seen and not self.finished:
            self._learn(payload)

    def _learn(self, payload: bytes) -> None:
        """From now on, recognize events that differ from this one only in their text and in the running usage."""
        if (usual := learned(payload)) is None or not self._extends(usual[0]):
            return
        self._lessons -= 1
        self._splitter.repeated = usual[1]

    def _taken(self) -> bytes:
        taken, self._out[:] = b"".join(self._out), ()
        return taken

    def _begin(self, chunk: dict[str, Any]) -> None:
        """Handle the first event."""

    def _add(self, choice: dict[str, Any]) -> None:
        """Add a choice of an event to the answer. Raises EngineFailed."""
        raise NotImplementedError

    def _extends(self, member: str) -> bool:
        """Whether events that hold only this member extend the growing text; `_extend` follows for each."""
        raise NotImplementedError

    def _extend(self, insides: list[bytes]) -> None:
        """Extend the growing text. insides: the contents of JSON strings."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Handle the engine's [DONE]."""
