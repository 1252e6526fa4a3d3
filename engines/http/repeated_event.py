"""Recognizes a stream's usual events by their bytes: they differ in one text only.

An engine writes the same members in the same order for every token. Once one event has been decoded, the next ones are
compared with it, which costs a tenth of decoding them. A text is a JSON string's inside, and checked to
be one: an event that is anything else is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_inside: Callable[[bytes, int], re.Match[bytes]] = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb'|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))[^"\\\x00-\x1f]*)*'
).match  # type: ignore[assignment]  # it always matches, if only nothing
_json = msgspec.json.Decoder(msgspec.Raw).decode


class RepeatedEvent:
    """What surrounds the text in each event."""

    __slots__ = ("after", "before", "begin", "between", "end")

    def __init__(self, before: bytes, after: bytes) -> None:
        """before, after: of the event's payload."""
        self.before = before
        self.after = after
        self.begin = b"data: " + before
        self.end = after + b"\n\n"
        self.between = self.end + self.begin

    def run(self, data: bytes, start: int) -> tuple[list[bytes], int]:
        """The texts of the whole events that begin at `start`, one after the other, and where they end. Takes time in
        proportion to the events found: what follows them is not searched."""
        begin, end, texts = self.begin, self.end, []
        before_bytes, after_bytes = len(begin), len(end)
        while data.startswith(begin, start):
            start_of_text = start + before_bytes
            stop = _inside(data, start_of_text).end()
            if not data.startswith(end, stop):
                break  # it is another event, or not whole
            text = data[start_of_text:stop]
            if not (text.isascii() or _is_utf8(text)):
                break
            texts.append(text)
            start = stop + after_bytes
        return texts, start

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

    @classmethod
    def after(cls, usual: RepeatedEvent, usage: bytes) -> CountedEvent | None:
        """The usual event that this one is, with this usage after its text; None: the usage stands elsewhere."""
        after, found, rest = usual.after.rpartition(usage)
        return cls(usual.before, after, rest) if found and after.endswith(b',"usage":') else None

    def cut(self, payload: bytes) -> tuple[bytes, bytes] | None:
        """Text and usage of such an event; None: it is another one."""
        if not payload.startswith(self._before) or not payload.endswith(self._rest):
            return None
        start = len(self._before)
        end = _inside(payload, start).end()
        if not payload.startswith(self._after, end):
            return None
        text, usage = payload[start:end], payload[end + len(self._after) : len(payload) - len(self._rest)]
        if not usage.startswith(b"{") or not (text.isascii() or _is_utf8(text)):
            return None
        try:
            _json(usage)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return text, usage


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
