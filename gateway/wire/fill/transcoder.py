"""Reads an engine's chunks of one completion and gives a format the text for its clients.

The format frames that text with a `Framing`, made for one request with its data. Pure, except for the clock.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from contracts.errors import SlipstreamError, UnsupportedField
from contracts.usage import Usage
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import ReadError, created_of, decoded, error_in, finish_of, has_text, texts_of
from gateway.wire.fill.confidence import Confidence
from gateway.wire.fill.request import Filled, filled_of
from gateway.wire.fill.stop_rules import TextFilter
from gateway.wire.format import Transcoder
from gateway.wire.prepared import Prepared
from gateway.wire.usage_tracker import UsageTracker


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A completion that has ended."""

    text: str
    """The whole text, with the file's line ends."""
    usage: Usage
    finish_reason: str
    """`length` if the output limit ended it, otherwise `stop`."""
    prompt_s: float
    """Seconds from the engine's request to its first event."""
    output_s: float
    """Seconds from the first event to the end."""
    created: int
    """Unix time in seconds, from the engine; 0 if not reported."""


class WholeFraming(Protocol):
    """Writes one request's unstreamed response."""

    def whole(self, answer: Answer) -> bytes:
        """The response's body."""
        ...


class StreamFraming(Protocol):
    """Writes one request's streamed response."""

    def frame(self, text: str) -> bytes:
        """An event of a stream. text: never empty."""
        ...

    def last(self, answer: Answer) -> bytes:
        """The end of a stream, after all text."""
        ...


class Framing(WholeFraming, StreamFraming, Protocol):
    """Writes either response."""


FramingT = TypeVar("FramingT")


class _Transcoder(Transcoder, Generic[FramingT]):
    """One attempt's text: the common part of both transcoders."""

    def __init__(
        self,
        framing: FramingT,
        filled: Filled,
        usage: UsageTracker,
        read_error: ReadError,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """filled: `Prepared.details`. usage, read_error: see `WireFormat.transcoder`. clock: seconds."""
        self._framing = framing
        self._filled = filled
        self._usage = usage
        self._read_error = read_error
        self._clock = clock
        self._line_feeds = io.IncrementalNewlineDecoder(None, translate=True)
        """Converts line ends to line feeds: the engine may use the file's, and split one between two events."""
        self._filter = TextFilter(filled.rules, filled.suffix, clock)
        self._confidence = Confidence(filled.min_confidence, filled.opening) if filled.min_confidence else None
        self._unjudged: list[str] = []
        """Text held back until all of it has passed the threshold."""
        self._splitter = EventSplitter()
        self._parts: list[str] = []
        self._finish_reason: str | None = None
        self._made_s = clock()
        self._first_event_s: float | None = None
        self._cut = False
        self._created = 0
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None

    @property
    def finished(self) -> bool:
        return self._finish_reason is not None

    @property
    def satisfied(self) -> bool:
        """Whether a stop rule has ended the text although the engine continues, or the response was cut."""
        return self._cut or (self._filter.stopped and not self.finished and self.error is None)

    def cut(self) -> None:
        self._cut = not self.finished

    @property
    def characters(self) -> int:
        return sum(map(len, self._parts))

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _read(self, data: bytes) -> str:
        """The text that may be sent now."""
        return "".join([self._event(decoded(payload)) for payload in self._splitter.feed(data) if payload != b"[DONE]"])

    def _event(self, chunk: dict[str, Any]) -> str:
        self.error = self.error or error_in(chunk, self._read_error)
        if self.error is not None:
            return ""
        if self._first_event_s is None:
            self._first_event_s = self._clock()
        if not self._created:
            self._created = created_of(chunk)
        self.events += 1
        self._usage.chunk(chunk)
        if self._cut or self._finish_reason is not None:  # drop text after the end
            return ""
        self.text_seen = self.text_seen or has_text(chunk)
        text = "".join(
            self._filter.feed(self._line_feeds.decode(text)) for index, text in texts_of(chunk) if index == 0
        )
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):
                self._finish_reason = self._finish_reason or finish_of(choice)
                if self._confidence is not None:
                    self._confidence.add(choice.get("logprobs"))
        if self._confidence is None:
            return self._shown(text)
        self._unjudged.append(text)
        if self.text_seen and not self._confidence.told and (self.finished or self._filter.stopped):
            self.error = UnsupportedField(
                "'min_confidence' is not available for this model, because its engine returns no log probabilities. "
                "Leave it out, or send 0 if the model's own setting requires it.",
                param="min_confidence",
            )
        return ""

    def _judged(self, rest: str) -> str:
        """The whole text, or empty text below the threshold."""
        text = "".join([*self._unjudged, rest])
        return text if self._confidence is None or self._confidence.is_enough(len(text)) else ""

    def _shown(self, text: str) -> str:
        """The text in the client's form."""
        if self._filled.warm_up:
            return ""
        text = text.replace("\n", self._filled.newline)
        if text:
            self._parts.append(text)
        return text

    def _ended(self) -> tuple[str, Answer]:
        """The text that was held back, and the answer."""
        by_rule = self._filter.stopped or self._cut
        held = self._filter.feed(self._line_feeds.decode("", final=True))
        rest = self._shown(self._judged(held + self._filter.finish()))
        began_s = self._made_s if self._first_event_s is None else self._first_event_s
        answer = Answer(
            text="".join(self._parts),
            usage=self._usage.total or Usage(),
            finish_reason="length" if self._finish_reason == "length" and not by_rule else "stop",
            prompt_s=began_s - self._made_s,
            output_s=self._clock() - began_s,
            created=self._created,
        )
        return rest, answer


class FillRelay(_Transcoder[StreamFraming]):
    """A streamed answer."""

    def feed(self, data: bytes) -> bytes:
        text = self._read(data)
        return self._framing.frame(text) if text else b""

    def finish(self) -> bytes:
        rest, answer = self._ended()
        return (self._framing.frame(rest) if rest else b"") + self._framing.last(answer)


class FillCollector(_Transcoder[WholeFraming]):
    """A response that is sent whole."""

    def feed(self, data: bytes) -> bytes:
        self._read(data)
        return b""

    def finish(self) -> bytes:
        _, answer = self._ended()
        return self._framing.whole(answer)


def fill_transcoder(
    framing: Framing, prepared: Prepared, usage: UsageTracker, read_error: ReadError
) -> FillRelay | FillCollector:
    """The transcoder of a gap's response, streamed or whole."""
    make = FillRelay if prepared.generation.stream else FillCollector
    return make(framing, filled_of(prepared), usage, read_error)
