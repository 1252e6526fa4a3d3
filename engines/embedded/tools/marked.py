"""The common part of parsers whose calls follow a marker."""

from __future__ import annotations

from abc import ABC, abstractmethod

from engines.embedded.stops import overlap
from engines.embedded.tools.calls import Event, Text
from engines.embedded.tools.reader import LONGEST_SPACE, CallReader


class MarkedParser(ABC):
    """Parses text and calls in any order; spaces around calls are not text."""

    def __init__(self, known: frozenset[str], marker: str) -> None:
        """known: names of the tools. marker: precedes the calls."""
        self._known = known
        self._marker = marker
        self._held = ""
        self._reader: CallReader | None = None
        self._after_call = False
        self._calls = 0

    def push(self, text: str) -> list[Event]:
        self._held += text
        events: list[Event] = []
        while self._held and self._advance(events):
            pass
        return events

    @abstractmethod
    def flush(self) -> list[Event]:
        pass

    @abstractmethod
    def _advance(self, events: list[Event]) -> bool:
        """Take one step through the held text; return False if more text must arrive first."""

    @abstractmethod
    def _call_ended(self) -> None:
        """Handle the end of an object that was a call."""

    @abstractmethod
    def _give_back(self, text: str, events: list[Event]) -> None:
        """Emit what looked like a call but is none as text, including the marker."""

    def _take_marker(self, events: list[Event]) -> bool:
        """Emit the text before the marker and remove both; return False if the marker is not complete yet."""
        at = self._held.find(self._marker)
        if at >= 0:
            self._tell(self._held[: self._text_before(at)], events)
            self._held = self._held[at + len(self._marker) :]
            return True
        # hold spaces back, because they are layout before and after a call
        cut = self._text_before(len(self._held) - overlap(self._held, self._marker))
        if cut:
            self._tell(self._held[:cut], events)
            self._held = self._held[cut:]
        return False

    def _text_before(self, end: int) -> int:
        """Where the spaces before this place of the held text begin."""
        return max(len(self._held[:end].rstrip()), end - LONGEST_SPACE)

    def _read_object(self, reader: CallReader, events: list[Event]) -> bool:
        text, self._held = self._held, ""
        events += reader.push(text)
        if reader.rest is None:
            return False
        self._held, self._reader = reader.rest, None
        if reader.valid:
            self._calls += 1
            self._call_ended()
        else:
            self._after_call = False
            self._give_back(reader.text, events)
        return bool(self._held)

    def _tell(self, text: str, events: list[Event]) -> None:
        if self._after_call:
            text = text.lstrip()
        if text:
            self._after_call = False
            events.append(Text(text))
