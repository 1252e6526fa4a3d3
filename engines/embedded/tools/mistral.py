"""Calls after `[TOOL_CALLS]`: a JSON list of them, or name, `[ARGS]` and arguments. Mistral, older and newer models."""

from __future__ import annotations

import re
import secrets
import string

from engines.embedded.tools.calls import CallArguments, CallStart, Event, Text, overlap
from engines.embedded.tools.reader import CallReader, ObjectScanner

MARKER, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
LONGEST_HEAD = 64 + len(CALL_ID) + 64 + len(ARGUMENTS)
"""Characters of a name, an id of the model's own, and the marks around them."""
BETWEEN = " \n\r\t,"
_HEAD = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})(?:\[CALL_ID\][^\[\]]*)?\[ARGS\]\s*(?=\{)")
_ALPHABET = string.ascii_letters + string.digits


def new_call_id() -> str:
    """Nine letters and digits: the templates of this family refuse a conversation whose ids are anything else."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class MistralParser:
    """Text and calls in any order; spaces around calls are no text."""

    def __init__(self, known: frozenset[str]) -> None:
        """known: names of the tools."""
        self._known = known
        self._held = ""
        self._opening = False
        """The marker was read, but not yet what it opens."""
        self._prefix = ""
        """The marker and what followed it, as it came; text if no call begins."""
        self._reader: CallReader | None = None
        self._arguments: ObjectScanner | None = None
        self._in_list = False
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
        reader, self._reader = self._reader, None
        if self._arguments is not None or (reader is not None and reader.started):
            return []
        events: list[Event] = []
        if self._in_list and not self._prefix and reader is None and not self._held.strip(BETWEEN):
            return []
        self._give_back(("" if reader is None else reader.text) + self._held, events)
        return events

    def _advance(self, events: list[Event]) -> bool:
        """One step through what is held. False: more must arrive first."""
        if self._arguments is not None:
            return self._read_arguments(self._arguments, events)
        if self._reader is not None:
            return self._read_object(self._reader, events)
        if self._in_list:
            return self._next_of_list(events)
        if self._opening:
            return self._open(events)
        at = self._held.find(MARKER)
        if at >= 0:
            self._tell(self._held[:at].rstrip(), events)
            self._held, self._opening, self._prefix = self._held[at + len(MARKER) :], True, MARKER
            return True
        cut = len(self._held) - overlap(self._held, MARKER)
        # spaces wait: before or after a call they are layout
        cut = len(self._held[:cut].rstrip())
        if cut:
            self._tell(self._held[:cut], events)
            self._held = self._held[cut:]
        return False

    def _open(self, events: list[Event]) -> bool:
        """What follows the marker: a list, one object, or a name."""
        text = self._held.lstrip()
        space = self._held[: len(self._held) - len(text)]
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
        """Between two objects of a list."""
        text = self._held.lstrip(BETWEEN)
        if text.startswith("]") and not self._prefix:
            self._held, self._in_list, self._after_call = text[1:], False, True
        elif text.startswith("{"):
            self._prefix += self._held[: len(self._held) - len(text)] if self._prefix else ""
            self._held, self._reader = text, self._call()
        elif text:
            self._give_back("", events)
        return bool(text)

    def _read_object(self, reader: CallReader, events: list[Event]) -> bool:
        text, self._held = self._held, ""
        events += reader.push(text)
        if reader.rest is None:
            return False
        self._held, self._reader = reader.rest, None
        if reader.valid:
            self._calls += 1
            self._prefix, self._after_call = "", True
        else:
            self._after_call = False
            self._give_back(reader.text, events)
        return bool(self._held)

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
        """What looked like a call and is none is text, from the marker on."""
        text, self._prefix = self._prefix + text, ""
        self._opening = self._in_list = False
        self._tell(text, events)

    def _tell(self, text: str, events: list[Event]) -> None:
        if self._after_call:
            text = text.lstrip()
        if text:
            self._after_call = False
            events.append(Text(text))


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
        return ARGUMENTS.startswith(rest) or (rest.startswith(ARGUMENTS) and not rest[len(ARGUMENTS) :].strip())
    return (
        ARGUMENTS.startswith(rest)
        or CALL_ID.startswith(rest)
        or (rest.startswith(ARGUMENTS) and not rest[len(ARGUMENTS) :].strip())
    )
