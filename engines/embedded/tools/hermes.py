"""Calls between `<tool_call>` tags, one JSON object each: Hermes, Qwen 2.5, Qwen 3."""

from __future__ import annotations

from engines.embedded.tools.calls import Event, Text, overlap
from engines.embedded.tools.reader import CallReader

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """Text and calls in any order; spaces around calls are no text."""

    def __init__(self, known: frozenset[str]) -> None:
        """known: names of the tools."""
        self._known = known
        self._held = ""
        self._reader: CallReader | None = None
        self._closing = False
        self._after_call = False
        self._calls = 0

    def push(self, text: str) -> list[Event]:
        """See `CallParser`."""
        self._held += text
        events: list[Event] = []
        while self._held and self._advance(events):
            pass
        return events

    def flush(self) -> list[Event]:
        """See `CallParser`."""
        text, self._held = self._held, ""
        reader, self._reader = self._reader, None
        if self._closing or (reader is not None and reader.started):
            return []
        if reader is not None:
            text, self._after_call = OPEN + reader.text + text, False
        events: list[Event] = []
        self._tell(text, events)
        return events

    def _advance(self, events: list[Event]) -> bool:
        """One step through what is held. False: more must arrive first."""
        if self._reader is not None:
            return self._read(self._reader, events)
        if self._closing:
            return self._close()
        at = self._held.find(OPEN)
        if at >= 0:
            self._tell(self._held[:at].rstrip(), events)
            self._held = self._held[at + len(OPEN) :]
            self._reader = CallReader(self._calls, self._known)
            return True
        cut = len(self._held) - overlap(self._held, OPEN)
        # spaces wait: before or after a call they are layout
        cut = len(self._held[:cut].rstrip())
        if cut:
            self._tell(self._held[:cut], events)
            self._held = self._held[cut:]
        return False

    def _read(self, reader: CallReader, events: list[Event]) -> bool:
        text, self._held = self._held, ""
        events += reader.push(text)
        if reader.rest is None:
            return False
        self._held, self._reader = reader.rest, None
        if reader.valid:
            self._calls += 1
            self._closing = True
        else:
            self._after_call = False
            self._tell(OPEN + reader.text, events)
        return bool(self._held)

    def _close(self) -> bool:
        text = self._held.lstrip()
        if text.startswith(CLOSE):
            self._held, self._closing, self._after_call = text[len(CLOSE) :], False, True
            return True
        if CLOSE.startswith(text):
            return False
        # the tag is missing: go on as if it had been there
        self._closing, self._after_call = False, True
        return True

    def _tell(self, text: str, events: list[Event]) -> None:
        if self._after_call:
            text = text.lstrip()
        if text:
            self._after_call = False
            events.append(Text(text))
