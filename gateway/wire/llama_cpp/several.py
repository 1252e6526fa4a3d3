"""Several completions of one prompt, as llama.cpp answers with them: each has a transcoder of its own.

Whole they are an array; in a stream their events come as they are made, each with its `index`, and one ends each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Generation
from contracts.usage import Usage
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import ReadError, decoded, error_in, has_text
from gateway.wire.fill.request import Filled
from gateway.wire.fill.transcoder import Answer, FillCollector, FillRelay
from gateway.wire.llama_cpp.answer import Framing, Wanted
from gateway.wire.usage_tracker import UsageTracker


class _Page(Framing):
    """How one of them is written."""

    usage = Usage()
    """Told by the engine's events of all of them, and set before the end is asked for."""

    def last(self, answer: Answer) -> bytes:
        """What ends its part of a stream."""
        return super().last(msgspec.structs.replace(answer, usage=self.usage))

    def whole(self, answer: Answer) -> bytes:
        """One entry of the array."""
        return super().whole(msgspec.structs.replace(answer, usage=self.usage))


class _Several:
    """State of one attempt's answer with more than one completion."""

    def __init__(
        self,
        generation: Generation,
        filled: Filled,
        wanted: Wanted,
        usage: UsageTracker,
        read_error: ReadError,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Parameters as of `FillCollector`."""
        self._usage = usage
        self._read_error = read_error
        self._splitter = EventSplitter()
        self._pages = [
            _Page(generation, wanted, index, truncated=filled.truncated) for index in range(generation.choices)
        ]
        make = FillRelay if generation.stream else FillCollector
        self._each: Sequence[FillRelay | FillCollector] = [
            make(page, filled, UsageTracker(1), read_error, clock) for page in self._pages
        ]
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None
        """The engine reported one inside its stream, or a completion cannot be judged."""

    @property
    def finished(self) -> bool:
        """Every completion has its finish_reason."""
        return all(one.finished for one in self._each)

    @property
    def complete(self) -> bool:
        """The engine ended as it should."""
        return self.finished and self.error is None

    @property
    def satisfied(self) -> bool:
        """Whatever the engine goes on with, stop rules have ended."""
        return not self.finished and all(one.finished or one.satisfied for one in self._each)

    def cut(self) -> None:
        """As of `Transcoder`."""
        for one in self._each:
            one.cut()

    @property
    def characters(self) -> int:
        """Of the first one."""
        return self._each[0].characters

    @property
    def text(self) -> str:
        """Of the first one."""
        return self._each[0].text

    def feed(self, data: bytes) -> bytes:
        """What may be sent at once, whosever it is."""
        return b"".join([self._event(payload) for payload in self._splitter.feed(data) if payload != b"[DONE]"])

    def _event(self, payload: bytes) -> bytes:
        chunk = decoded(payload)
        self.error = self.error or error_in(chunk, self._read_error)
        if self.error is not None:
            return b""
        self.events += 1
        self._usage.chunk(chunk)
        self.text_seen = self.text_seen or has_text(chunk)
        sent = b""
        for choice in chunk.get("choices") or ():
            index = int(choice.get("index") or 0)
            if index < len(self._each):
                alone = {**chunk, "choices": [{**choice, "index": 0}]}
                sent += self._each[index].feed(b"data: " + msgspec.json.encode(alone) + b"\n\n")
                self.error = self.error or self._each[index].error
        return sent

    def _ended(self) -> list[bytes]:
        """What ends each. Its own tokens are told where the engine tells them apart."""
        by_choice, total = self._usage.output_tokens, self._usage.total or Usage()
        for index, page in enumerate(self._pages):
            page.usage = msgspec.structs.replace(total, completion_tokens=by_choice.get(index, total.completion_tokens))
        return [one.finish() for one in self._each]


class SeveralCollector(_Several):
    """Of an answer that is sent whole."""

    def finish(self) -> bytes:
        """The array."""
        return b"[" + b",".join(self._ended()) + b"]"


class SeveralRelay(_Several):
    """Of a streamed answer."""

    def finish(self) -> bytes:
        """What was held back of each, and the event that ends it."""
        return b"".join(self._ended())
