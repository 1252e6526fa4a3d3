"""Parses responses of Llama 3.1 to 3.3, in which a JSON object is a call and semicolons separate calls."""

from __future__ import annotations

from engines.embedded.tools.calls import Event, Text
from engines.embedded.tools.reader import LONGEST_SPACE, CallReader

SPACE = " \n\r\t"
BETWEEN = SPACE + ";"


class Llama3Parser:
    """Calls come first; everything after other text is text."""

    def __init__(self, known: frozenset[str]) -> None:
        """known: names of the tools."""
        self._known = known
        self._calls = 0
        self._held = ""
        self._plain = False
        self._reader: CallReader | None = None

    def push(self, text: str) -> list[Event]:
        if self._plain:
            return [Text(text)] if text else []
        events: list[Event] = []
        self._held += text
        while self._held and not self._plain:
            if self._reader is None and not self._begin(events):
                break
            reader = self._reader
            assert reader is not None
            text, self._held = self._held, ""
            events += reader.push(text)
            if reader.rest is None:
                break
            self._reader = None
            if reader.valid:
                self._calls += 1
                self._held = reader.rest
            else:
                self._give_up(reader.text + reader.rest, events)
        return events

    def _begin(self, events: list[Event]) -> bool:
        """Begin to read an object if one starts here."""
        start = self._held.lstrip(BETWEEN if self._calls else SPACE)
        if len(self._held) - len(start) > LONGEST_SPACE:
            self._give_up(self._held[LONGEST_SPACE:] if self._calls else self._held, events)
            return False
        if start.startswith("{"):
            self._held, self._reader = start, CallReader(self._calls, self._known)
            return True
        if start:
            self._give_up(start if self._calls else self._held, events)
        return False

    def flush(self) -> list[Event]:
        text, self._held = self._held, ""
        if self._reader is not None:
            if self._reader.started:
                return []
            text, self._reader = self._reader.text + text, None
        return [Text(text)] if text and not (self._calls and not text.strip(BETWEEN)) else []

    def _give_up(self, text: str, events: list[Event]) -> None:
        self._plain, self._held = True, ""
        events.append(Text(text))
