"""Several completions of one prompt, in llama.cpp's format: each has its own transcoder.

Without a stream, they are an array. In a stream, their events interleave, each with its `index`, and each completion
has its own last event.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Generation
from contracts.usage import Usage
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import ReadError, decoded, error_in, has_text
from gateway.wire.fill.request import Filled
from gateway.wire.fill.transcoder import Answer, FillCollector, FillRelay
from gateway.wire.format import Transcoder
from gateway.wire.llama_cpp.answer import Framing, Wanted
from gateway.wire.usage_tracker import UsageTracker


class _Page(Framing):
    """Framing of one completion."""

    usage = Usage()
    """The completion's usage, set before its end is written."""

    def last(self, answer: Answer) -> bytes:
        """The completion's last event."""
        return super().last(msgspec.structs.replace(answer, usage=self.usage))

    def whole(self, answer: Answer) -> bytes:
        """The completion's entry in the array."""
        return super().whole(msgspec.structs.replace(answer, usage=self.usage))


class Several(Transcoder):
    """State of one attempt's answer with more than one completion."""

    def __init__(
        self,
        generation: Generation,
        filled: Filled,
        wanted: Wanted,
        usage: UsageTracker,
        read_error: ReadError,
    ) -> None:
        """Parameters: see `FillCollector`."""
        self._stream = generation.stream
        self._usage = usage
        self._read_error = read_error
        self._splitter = EventSplitter()
        self._pages = [
            _Page(generation, wanted, index, truncated=filled.truncated) for index in range(generation.choices)
        ]
        make = FillRelay if generation.stream else FillCollector
        self._each: Sequence[FillRelay | FillCollector] = [
            make(page, filled, UsageTracker(1), read_error) for page in self._pages
        ]
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None
        """The error that the engine reported inside its stream, or of a completion that cannot be judged."""

    @property
    def finished(self) -> bool:
        return all(completion.finished for completion in self._each)

    @property
    def satisfied(self) -> bool:
        """Whether stop rules have ended all completions. Further output is dropped."""
        return not self.finished and all(completion.finished or completion.satisfied for completion in self._each)

    def cut(self) -> None:
        for completion in self._each:
            completion.cut()

    @property
    def characters(self) -> int:
        return self._each[0].characters

    @property
    def text(self) -> str:
        return self._each[0].text

    def feed(self, data: bytes) -> bytes:
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

    def finish(self) -> bytes:
        """The array, or each completion's end in a stream. Each has its own token count: the engine's, or one token for
        each of its events if the engine counts only the sum."""
        by_choice, total = self._usage.output_tokens, self._usage.total or Usage()
        for index, (page, completion) in enumerate(zip(self._pages, self._each, strict=True)):
            page.usage = msgspec.structs.replace(total, completion_tokens=by_choice.get(index, completion.events))
        ends = [completion.finish() for completion in self._each]
        return b"".join(ends) if self._stream else b"[" + b",".join(ends) + b"]"
