"""Counts an engine's output when the engine itself reports no usage, so that no generated text is free.

The count is a lower bound: each event with text is at least one token, and if the model has a tokenizer, the text's
tokens count if they are more. The count is needed only at the end of a stream that broke off or whose engine never
counts. Until then, events are only set aside, because decoding them would cost more than passing them on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engines.tokenizer.off_loop import OffLoopTokenizer
from gateway.wire.chunk import texts_in, texts_of

UNREAD_BYTES = 65_536
"""Events set aside before their text is extracted."""
TEXT_BYTES = 64
"""Memory of a text in addition to its bytes."""
KEPT_CHARACTERS = 65_536
"""Text kept for the tokenizer, all choices together. After it, each event counts as one token."""


class Delivered:
    """The generated text of one attempt's stream, within bounded memory."""

    __slots__ = ("_beyond", "_events", "_kept", "_size", "_texts", "_unread")

    def __init__(self) -> None:
        self._unread: list[bytes | tuple[int, str] | list[bytes]] = []
        """Raw events; (choice, text) of events that were decoded anyway; JSON strings' contents of the only choice."""
        self._size = 0
        self._events = 0
        self._texts: dict[int, list[str]] = {}
        """Kept texts by choice."""
        self._kept = 0
        self._beyond = 0
        """Events whose text was not kept completely."""

    def add(self, payload: bytes) -> None:
        """Add a raw event."""
        self._unread.append(payload)
        self._size += len(payload)
        if self._size > UNREAD_BYTES:
            self._read()

    def texts(self, insides: list[bytes]) -> None:
        """Add events of the only choice by their texts, the contents of JSON strings."""
        self._unread.append(insides)
        self._size += sum(map(len, insides)) + TEXT_BYTES * len(insides)
        if self._size > UNREAD_BYTES:
            self._read()

    def chunk(self, chunk: dict[str, Any]) -> bool:
        """Add a decoded event. Returns whether it has text."""
        texts = list(texts_of(chunk))
        self._unread += texts
        self._size += sum([len(text) + 2 * TEXT_BYTES for _, text in texts])
        if self._size > UNREAD_BYTES:
            self._read()
        return bool(texts)

    @property
    def events(self) -> int:
        """Number of texts added to any choice; each is at least one token."""
        self._read()
        return self._events

    async def tokens(self, tokenizer: OffLoopTokenizer | None, tenant: str) -> int:
        """Lower bound of the tokens of all choices. tokenizer: None to count events. tenant: for the tokenizer's fair
        queue. Raises the tokenizer's errors."""
        events = self.events
        if tokenizer is None:
            return events
        counted = [len(await tokenizer.encode("".join(texts), tenant=tenant)) for texts in self._texts.values()]
        return max(events, sum(counted) + self._beyond)

    def _read(self) -> None:
        unread, self._unread, self._size = self._unread, [], 0
        for event in unread:
            if isinstance(event, bytes):
                for index, text in texts_in(event):
                    self._grow(index, text)
            elif isinstance(event, list):
                for inside in filter(None, event):
                    self._grow(0, msgspec.json.decode(b'"%b"' % inside, type=str))
            else:
                self._grow(*event)
        for texts in self._texts.values():  # a string of one token takes ten times its characters
            texts[:] = ["".join(texts)]

    def _grow(self, index: int, text: str) -> None:
        self._events += 1
        room = KEPT_CHARACTERS - self._kept
        if len(text) > room:
            self._beyond += 1
            text = text[:room]
        self._kept += len(text)
        self._texts.setdefault(index, []).append(text)
