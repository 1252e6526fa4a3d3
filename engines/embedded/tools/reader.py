"""Reads one `{"name": …, "arguments": {…}}` while it arrives, so that arguments can be streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from engines.embedded.tools.calls import CallArguments, CallStart, Event, new_call_id

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')

LONGEST_HEAD = 1_024
"""Characters in which a call's name and its arguments begin; otherwise the object is parsed when it is complete. A
longer beginning would be searched again with each token."""
LONGEST_SPACE = 1_024
"""Characters of space beside a call that are not text; more of them would be searched again with each token too."""


class ObjectScanner:
    """Finds the end of a JSON object without parsing it."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end(self, text: str) -> int:
        """Index after the brace that closes the object, or -1 if it is not in this chunk. Before the opening brace, the
        first chunk may have anything but braces and quotes."""
        for at, character in enumerate(text):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character == "{":
                self._depth += 1
            elif character == "}":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1
        return -1


class CallReader:
    """The state of one call. Call `push` until `rest` is not None."""

    def __init__(self, index: int, known: frozenset[str], new_id: Callable[[], str] = new_call_id) -> None:
        """index: number of the call. known: names of the tools; an object with another name is no call. new_id: returns
        a new id for the call."""
        self._new_id = new_id
        self._index = index
        self._known = known
        self._whole = ObjectScanner()
        self._arguments: ObjectScanner | None = None
        self._arguments_ended = False
        self.started = False
        """Whether the name was emitted."""
        self.text = ""
        """All text read so far."""
        self.rest: str | None = None
        """The text after the object, once it has ended."""
        self.valid = True
        """False if the object has ended and is no call."""

    def push(self, text: str) -> list[Event]:
        """Process more text, from the opening brace on; spaces may precede it."""
        if not self.text:
            text = text.lstrip()
            if text and not text.startswith("{"):
                self.valid, self.rest = False, text
                return []
        searched = len(self.text)
        self.text += text
        end = self._whole.end(text)
        if end >= 0:
            self.rest = text[end:]
            text = text[:end]
            self.text = self.text[: len(self.text) - len(self.rest)]
        if self.started:
            return self._more(text)
        head = _HEAD.match(self.text, 0, LONGEST_HEAD) if searched < LONGEST_HEAD else None
        if head is not None:
            name = _unescaped(head[1])
            if name not in self._known:
                self.valid = self.rest is None
                return []
            self.started, self._arguments = True, ObjectScanner()
            return [CallStart(self._index, self._new_id(), name), *self._more(self.text[head.end() :])]
        return [] if self.rest is None else self._out_of_order()

    def _more(self, text: str) -> list[Event]:
        if self._arguments_ended or not text:
            return []
        assert self._arguments is not None
        end = self._arguments.end(text)
        self._arguments_ended = end >= 0
        return [CallArguments(self._index, text if end < 0 else text[:end])]

    def _out_of_order(self) -> list[Event]:
        """Parse a complete object that does not begin as usual, because its keys may be in another order."""
        try:
            value: dict[str, Any] = json.loads(self.text)
            arguments = value.get("arguments", value.get("parameters", {}))
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            text = json.dumps(arguments, ensure_ascii=False)
        except (ValueError, RecursionError):  # the model may nest as deeply as its output is long
            self.valid = False
            return []
        name: Any = value.get("name")
        self.valid = isinstance(name, str) and name in self._known and isinstance(arguments, dict)
        if not self.valid:
            return []
        self.started = True
        return [CallStart(self._index, self._new_id(), name), CallArguments(self._index, text)]


def _unescaped(text: str) -> str | None:
    try:
        name: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return None
    return name
