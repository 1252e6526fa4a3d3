"""Parses Mistral's calls after `[TOOL_CALLS]`: a JSON list, or in newer models name, `[ARGS]` and arguments."""

from __future__ import annotations

import re
import secrets
import string

from engines.embedded.tools.calls import CallArguments, CallStart, Event
from engines.embedded.tools.marked import MarkedParser
from engines.embedded.tools.reader import LONGEST_SPACE, CallReader, ObjectScanner

MARKER, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
LONGEST_HEAD = 64 + len(CALL_ID) + 64 + len(ARGUMENTS)
"""Characters of a name, an id from the model, and the marks around them."""
BETWEEN = " \n\r\t,"
_HEAD = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})(?:\[CALL_ID\][^\[\]]*)?\[ARGS\]\s*(?=\{)")
_ALPHABET = string.ascii_letters + string.digits


def new_call_id() -> str:
    """A new id of nine letters and digits; this family's templates refuse conversations with other ids."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class MistralParser(MarkedParser):
    """See `MarkedParser`. Several calls may follow one marker."""

    def __init__(self, known: frozenset[str]) -> None:
        """known: names of the tools."""
        super().__init__(known, MARKER)
        self._opening = False
        """Whether the marker was read, but not yet the kind of its content."""
        self._prefix = ""
        """The marker and the text after it, unchanged; text if no call begins."""
        self._arguments: ObjectScanner | None = None
        self._in_list = False

    def flush(self) -> list[Event]:
        reader, self._reader = self._reader, None
        if self._arguments is not None or (reader is not None and reader.started):
            return []
        events: list[Event] = []
        if self._in_list and not self._prefix and reader is None and not self._held.strip(BETWEEN):
            return []
        self._give_back(("" if reader is None else reader.text) + self._held, events)
        return events

    def _advance(self, events: list[Event]) -> bool:
        if self._arguments is not None:
            return self._read_arguments(self._arguments, events)
        if self._reader is not None:
            return self._read_object(self._reader, events)
        if self._in_list:
            return self._next_of_list(events)
        if self._opening:
            return self._open(events)
        if not self._take_marker(events):
            return False
        self._opening, self._prefix = True, MARKER
        return True

    def _open(self, events: list[Event]) -> bool:
        """Read the beginning of the content after the marker: a list, an object or a name."""
        text = self._held.lstrip()
        space = self._held[: len(self._held) - len(text)]
        if len(space) > LONGEST_SPACE:
            self._give_back("", events)
            return True
        if text.startswith("["):
            self._prefix += f"{space}["
            self._held, self._opening, self._in_list = text[1:], False, True
            return True
        if text.startswith("{"):
            self._prefix += space
            self._held, self._opening, self._reader = text, False, self._call()
            return True
        head = _HEAD.match(text)
        if head is not None and head[1] in self._known:
            events.append(CallStart(self._calls, new_call_id(), head[1]))
            self._held, self._opening, self._prefix = text[head.end() :], False, ""
            self._arguments = ObjectScanner()
            return True
        if head is None and _may_become_head(text):
            return False
        self._give_back("", events)
        return True

    def _next_of_list(self, events: list[Event]) -> bool:
        """Advance to the next object of a list."""
        text = self._held.lstrip(BETWEEN)
        if len(self._held) - len(text) > LONGEST_SPACE:
            self._give_back("", events)
            return True
        if text.startswith("]") and not self._prefix:
            self._held, self._in_list, self._after_call = text[1:], False, True
        elif text.startswith("{"):
            self._prefix += self._held[: len(self._held) - len(text)] if self._prefix else ""
            self._held, self._reader = text, self._call()
        elif text:
            self._give_back("", events)
        return bool(text)

    def _call_ended(self) -> None:
        self._prefix, self._after_call = "", True

    def _read_arguments(self, scanner: ObjectScanner, events: list[Event]) -> bool:
        end = scanner.end(self._held)
        cut = len(self._held) if end < 0 else end
        events.append(CallArguments(self._calls, self._held[:cut]))
        self._held = self._held[cut:]
        if end >= 0:
            self._arguments, self._after_call = None, True
            self._calls += 1
        return bool(self._held)

    def _call(self) -> CallReader:
        return CallReader(self._calls, self._known, new_call_id)

    def _give_back(self, text: str, events: list[Event]) -> None:
        text, self._prefix = self._prefix + text, ""
        self._opening = self._in_list = False
        self._tell(text, events)


def _may_become_head(text: str) -> bool:
    """Whether more text could make this a name and its marks."""
    if len(text) > LONGEST_HEAD:
        return False
    name = re.match(r"[a-zA-Z0-9_-]{0,64}", text)
    assert name is not None
    rest = text[name.end() :]
    if rest.startswith(CALL_ID):
        own = re.match(r"[^\[\]]*", rest[len(CALL_ID) :])
        assert own is not None
        rest = rest[len(CALL_ID) + own.end() :]
    elif CALL_ID.startswith(rest):
        return True
    return ARGUMENTS.startswith(rest) or (rest.startswith(ARGUMENTS) and not rest[len(ARGUMENTS) :].strip())
