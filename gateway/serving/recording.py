"""Records an engine's output for one request, for other requests of the same key that it also answers.

The request that a recording belongs to, its leader, writes it in its callback. Followers read it in their own tasks, so
that the leader never waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

import msgspec

from contracts.errors import EngineFailed
from gateway.wire.fill.confidence import characters_of, untold_of
from gateway.wire.written import Token, Written


class Cursor(msgspec.Struct, frozen=True):
    """The position from which a generation was requested, without the text before it."""

    place: bytes
    """Digest of the caller and of the whole request to the engine, except its prefix."""
    characters: int
    """Length of the prefix."""
    prefix_digest: bytes
    ended_by: bytes
    """Digest of the rules that may stop the engine early: the leader's own, and those of its supersession."""


class End(Enum):
    """How a recording ended."""

    FINISHED = "finished"
    """The engine ended it: the model had finished, or its limit was reached."""
    BY_RULE = "by_rule"
    """A stop rule of the leader stopped the engine."""
    SUPERSEDED = "superseded"
    """A newer keystroke of the leader's user stopped the engine."""
    BROKEN = "broken"
    """The leader failed, or its client left."""

    @property
    def kept(self) -> bool:
        """Whether its text may answer later requests."""
        return self in (End.FINISHED, End.BY_RULE)


class Recording:
    """One generation's text as it grows. request_id: the leader's id. opening: a beginning that its first token may
    have but its text lacks (`Filled.opening`)."""

    __slots__ = ("cursor", "end", "on_alone", "opening", "readings", "request_id", "written")

    def __init__(self, request_id: str, cursor: Cursor, opening: str = "") -> None:
        self.request_id = request_id
        self.cursor = cursor
        self.opening = opening
        self.written = Written()
        """Its text and tokens so far."""
        self.end: End | None = None
        self.readings: set[Reading] = set()
        self.on_alone: Callable[[], None] | None = None
        """Called when the last reading is closed."""

    def feed(self, data: bytes) -> None:
        """Add the engine's bytes as they arrive. Never raises."""
        if self.end is not None:
            return
        try:
            self.written.feed(data)
        except EngineFailed:
            self.close(End.BROKEN)
            return
        if self.written.finish_reason is not None:
            self.end = End.FINISHED
        self._wake()

    def begin_again(self) -> None:
        """Start over with another engine, because the previous one broke off before its first event."""
        if self.end is None:
            self.written = Written()

    def close(self, end: End) -> None:
        """End the recording. A second call has no effect."""
        if self.end is None:
            self.end = end
            self._wake()

    def read(self, typed: str) -> Reading:
        """Read the text after `typed`; the caller must close the reading."""
        reading = Reading(self, typed)
        self.readings.add(reading)
        return reading

    def _wake(self) -> None:
        for reading in self.readings:
            reading.wake()


class Reading:
    """A follower's position in a recording. typed: the beginning of the text, which its user has typed already."""

    __slots__ = ("_left_out", "_position", "_token", "_waiter", "recording", "typed")

    def __init__(self, recording: Recording, typed: str) -> None:
        """Call `Recording.read` instead."""
        self.recording = recording
        self.typed = typed
        self._position = len(typed)
        self._token = 0
        self._left_out = len(typed)
        """Characters of later tokens that are already in the reader's file."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def worthwhile(self) -> bool:
        """Whether the text after `typed` in an ended recording is a useful response. It is not if all was typed, nor if
        the limit ended the text and more than half of it was typed."""
        if not self.typed:
            return True
        text = self.recording.written.text
        if not text[len(self.typed) :].strip():
            return False
        return self.recording.written.finish_reason != "length" or 2 * len(self.typed) <= len(text)

    def take(self) -> str:
        """Text since the last call; may be empty."""
        start, text = self._position, self.recording.written.text
        self._position = max(start, len(text))
        return text[start:]

    def take_tokens(self) -> list[Token]:
        """Tokens since the last call; a partly typed token is cut to its rest."""
        found: list[Token] = []
        for text, value in self.recording.written.tokens[self._token :]:
            if not self._token:
                self._left_out += untold_of(text, self.recording.opening)
            self._token += 1
            size = characters_of(text)
            if 0 < self._left_out >= size:
                self._left_out -= size
                continue
            found.append((text[self._left_out :] if self._left_out else text, value))
            self._left_out = 0
        return found

    async def changed(self) -> None:
        """Return when there is more to take, or the recording has ended. Cancelling loses nothing."""
        recording = self.recording
        while recording.end is None and len(recording.written.text) <= self._position:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def wake(self) -> None:
        """Wake the follower, because the recording has grown or ended."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """End the reading. Idempotent."""
        recording = self.recording
        if self in recording.readings:
            recording.readings.remove(self)
            if not recording.readings and recording.on_alone is not None:
                recording.on_alone()
