"""Several completions of one prompt as the array that llama.cpp answers with: each has a collector of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Generation
from contracts.usage import Usage
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import ReadError, decoded, error_in, has_text
from gateway.wire.fill.request import Filled
from gateway.wire.fill.transcoder import Answer, FillCollector
from gateway.wire.llama_cpp.answer import Framing, Wanted
from gateway.wire.usage_tracker import UsageTracker


class SeveralCollector:
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
        self._collectors = [FillCollector(page, filled, UsageTracker(1), read_error, clock) for page in self._pages]
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None

    @property
    def finished(self) -> bool:
        """Every completion has its finish_reason."""
        return all(collector.finished for collector in self._collectors)

    @property
    def complete(self) -> bool:
        """The engine ended as it should."""
        return self.finished and self.error is None

    @property
    def satisfied(self) -> bool:
        """Whatever the engine goes on with, stop rules have ended."""
        return not self.finished and all(one.finished or one.satisfied for one in self._collectors)

    def cut(self) -> None:
        """As of `Transcoder`."""
        for collector in self._collectors:
            collector.cut()

    @property
    def characters(self) -> int:
        """Of the first one."""
        return self._collectors[0].characters

    def feed(self, data: bytes) -> bytes:
        """Takes the engine's bytes; never has anything to send before the end."""
        for payload in self._splitter.feed(data):
            if payload == b"[DONE]":
                continue
            chunk = decoded(payload)
            self.error = self.error or error_in(chunk, self._read_error)
            if self.error is not None:
                continue
            self.events += 1
            self._usage.chunk(chunk)
            self.text_seen = self.text_seen or has_text(chunk)
            for choice in chunk.get("choices") or ():
                index = int(choice.get("index") or 0)
                if index < len(self._collectors):
                    alone = {**chunk, "choices": [{**choice, "index": 0}]}
                    self._collectors[index].feed(b"data: " + msgspec.json.encode(alone) + b"\n\n")
        return b""

    def finish(self) -> bytes:
        """The array. A completion's own tokens are told where the engine tells them apart."""
        by_choice, total = self._usage.output_tokens, self._usage.total or Usage()
        for index, page in enumerate(self._pages):
            page.usage = msgspec.structs.replace(total, completion_tokens=by_choice.get(index, total.completion_tokens))
        return b"[" + b",".join(collector.finish() for collector in self._collectors) + b"]"


class _Page(Framing):
    """How one of them is written."""

    usage = Usage()
    """Told by the engine's events of all of them, and set before `whole` is asked for."""

    def whole(self, answer: Answer) -> bytes:
        """One entry of the array."""
        return super().whole(msgspec.structs.replace(answer, usage=self.usage))
