"""Parses calls between `<tool_call>` tags, each a JSON object, from Hermes, Qwen 2.5 and Qwen 3."""

from __future__ import annotations

from engines.embedded.tools.calls import Event
from engines.embedded.tools.marked import MarkedParser
from engines.embedded.tools.reader import CallReader

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(MarkedParser):
    """See `MarkedParser`. The marker is the opening tag."""

    def __init__(self, known: frozenset[str]) -> None:
        """known: names of the tools."""
        super().__init__(known, OPEN)
        self._closing = False

    def flush(self) -> list[Event]:
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
        if self._reader is not None:
            return self._read_object(self._reader, events)
        if self._closing:
            return self._close()
        if not self._take_marker(events):
            return False
        self._reader = CallReader(self._calls, self._known)
        return True

    def _call_ended(self) -> None:
        self._closing = True

    def _give_back(self, text: str, events: list[Event]) -> None:
        self._tell(OPEN + text, events)

    def _close(self) -> bool:
        text = self._held = self._held.lstrip()
        if text.startswith(CLOSE):
            self._held, self._closing, self._after_call = text[len(CLOSE) :], False, True
            return True
        if CLOSE.startswith(text):
            return False
        # the tag is missing, so continue as if it were there
        self._closing, self._after_call = False, True
        return True
