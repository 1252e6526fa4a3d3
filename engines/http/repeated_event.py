"""Recognizes a stream's usual events by their bytes: they differ in one text only.

An engine writes the same members in the same order for every token. Once one event has been decoded, the next ones are
compared with it, many at a time, which costs a tenth of decoding them. A text is a JSON string's inside, and checked to
be one: an event that is anything else is not recognized.
"""

from __future__ import annotations

import re

import msgspec

_END = b"\n\n"
_INSIDE = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb'|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))[^"\\\x00-\x1f]*)*'
)
_json = msgspec.json.Decoder(msgspec.Raw).decode


class RepeatedEvent:
    """What surrounds the text in each event."""

    __slots__ = ("after", "before", "begin", "between", "end")

    def __init__(self, before: bytes, after: bytes) -> None:
        """before, after: of the event's payload."""
        self.before = before
        self.after = after
        self.begin = b"data: " + before
        self.end = after + _END
        self.between = self.end + self.begin

    def run(self, data: bytes, start: int) -> tuple[list[bytes], int] | None:
        """The texts of the whole events that begin at `start`, one after the other, and where they end; None: there is
        none."""
        if not data.startswith(self.begin, start):
            return None
        texts = data[start + len(self.begin) :].split(self.between)
        last = texts.pop()
        at = last.find(self.end)
        if at >= 0:
            texts.append(last[:at])
            stop = len(data) - len(last) + at + len(self.end)
        else:  # it is another event, or not whole
            stop = len(data) - len(last) - len(self.begin)
        if not texts or not is_text(b" ".join(texts)):  # a blank would not hide half an escape
            return None
        return texts, stop

    def written(self, texts: list[bytes]) -> bytes:
        """Events with these texts."""
        return b"".join((self.begin, self.between.join(texts), self.end))


class CountedEvent:
    """A usual event with the usage so far, which differs too: in one place after the text."""

    __slots__ = ("_after", "_before", "_rest")

    def __init__(self, before: bytes, after: bytes, rest: bytes) -> None:
        """before, after: of the text, up to the usage. rest: after the usage."""
        self._before = before
        self._after = after
        self._rest = rest

    def cut(self, payload: bytes) -> tuple[bytes, bytes] | None:
        """Text and usage of such an event; None: it is another one."""
        if not payload.startswith(self._before) or not payload.endswith(self._rest):
            return None
        start = len(self._before)
        found = _INSIDE.match(payload, start)
        assert found is not None
        end = found.end()
        if not payload.startswith(self._after, end):
            return None
        text, usage = payload[start:end], payload[end + len(self._after) : len(payload) - len(self._rest)]
        if not usage.startswith(b"{") or not is_text(text):
            return None
        try:
            _json(usage)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return text, usage


def is_text(inside: bytes) -> bool:
    """Whether quotes around it make a JSON string."""
    if not _INSIDE.fullmatch(inside):
        return False
    if not inside.isascii():
        try:
            inside.decode()
        except UnicodeDecodeError:
            return False
    return True
