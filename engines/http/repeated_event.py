"""Recognizes a stream's usual events, which differ only in their text, by their bytes.

An engine writes the same members in the same order for every token. Once one event has been decoded, later ones are
compared with it, which costs a tenth of decoding them. The text must be the inside of a valid JSON string; otherwise
the event is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_inside: Callable[[bytes, int], re.Match[bytes]] = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb'|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))[^"\\\x00-\x1f]*)*'
).match  # type: ignore[assignment]  # it always matches, possibly an empty text
_json = msgspec.json.Decoder(msgspec.Raw).decode


class RepeatedEvent:
    """The bytes that surround the text in each usual event."""

    __slots__ = ("after", "before", "begin", "between", "end")

    def __init__(self, before: bytes, after: bytes) -> None:
        """before, after: the parts of the event's payload before and after the text."""
        self.before = before
        self.after = after
        self.begin = b"data: " + before
        self.end = after + b"\n\n"
        self.between = self.end + self.begin

    def run(self, data: bytes, start: int) -> tuple[list[bytes], int]:
        """The texts of the consecutive whole events that begin at `start`, and the position at which they end. The time
        is proportional to the events found, because the data after them is not searched."""
        begin, end, texts = self.begin, self.end, []
        before_bytes, after_bytes = len(begin), len(end)
        while data.startswith(begin, start):
            start_of_text = start + before_bytes
            stop = _inside(data, start_of_text).end()
            if not data.startswith(end, stop):
                break  # another event, or an incomplete one
            text = data[start_of_text:stop]
            if not (text.isascii() or _is_utf8(text)):
                break
            texts.append(text)
            start = stop + after_bytes
        return texts, start

    def written(self, texts: list[bytes]) -> bytes:
        """Events with these texts."""
        return b"".join((self.begin, self.between.join(texts), self.end))


class CountedRun(msgspec.Struct, frozen=True, gc=False):
    """Consecutive usual events with their usage. usages: each event's undecoded usage, and its payload."""

    texts: list[bytes]
    usages: list[tuple[bytes, bytes]]


class CountedEvent:
    """A usual event with the usage so far, which also differs and comes after the text."""

    __slots__ = ("_after", "_begin", "_rest")

    def __init__(self, before: bytes, after: bytes, rest: bytes) -> None:
        """before: the bytes before the text. after: the bytes between text and usage. rest: the bytes after usage."""
        self._begin = b"data: " + before
        self._after = after
        self._rest = rest

    @classmethod
    def after(cls, usual: RepeatedEvent, usage: bytes) -> CountedEvent | None:
        """The counted event for a usual event with this usage; None if the usage does not follow the text."""
        after, found, rest = usual.after.rpartition(usage)
        return cls(usual.before, after, rest) if found and after.endswith(b',"usage":') else None

    def run(self, data: bytes, start: int) -> tuple[CountedRun | None, int]:
        """Like `RepeatedEvent.run`; None without such an event."""
        begin, after, rest = self._begin, self._after, self._rest
        texts: list[bytes] = []
        usages: list[tuple[bytes, bytes]] = []
        while data.startswith(begin, start):
            start_of_text = start + len(begin)
            stop = _inside(data, start_of_text).end()
            if not data.startswith(after, stop):
                break
            start_of_usage, end = stop + len(after), data.find(b"\n", stop)
            text, usage = data[start_of_text:stop], data[start_of_usage : end - len(rest)]
            if not data.startswith(b"\n\n", end) or not data.startswith(rest, end - len(rest)):
                break
            if not (text.isascii() or _is_utf8(text)) or not usage.startswith(b"{"):
                break
            try:
                _json(usage)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                break
            texts.append(text)
            usages.append((usage, data[start + 6 : end]))
            start = end + 2
        return (CountedRun(texts, usages) if texts else None), start


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
