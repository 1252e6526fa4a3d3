"""A response whose engine reports the probability of every token to the gateway, but not to the client.

The transcoder wraps the format's own. It sums the log probabilities, removes them from the engine's events, and passes
the events on as they would be without them.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError
from engines.http.event_splitter import EventSplitter
from gateway.wire.format import Transcoder

MARK = b'"logprobs"'
NONE = msgspec.Raw(b"null")


class _Choice(msgspec.Struct, gc=False):
    logprobs: msgspec.Raw = NONE


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] = []


class _Token(msgspec.Struct, gc=False):
    logprob: float | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Token] | None = None


_event = msgspec.json.Decoder(_Event).decode
_logprobs = msgspec.json.Decoder(_Logprobs | None).decode


class JudgedAnswer(Transcoder):
    """The response to one conversation, with one choice. inner: builds the client's response."""

    def __init__(self, inner: Transcoder) -> None:
        self._inner = inner
        self._splitter = EventSplitter()
        self._sum = 0.0
        self._tokens = 0
        self.events = 0
        self.text_seen = False
        self.error: SlipstreamError | None = None

    @property
    def confidence(self) -> float | None:
        """Geometric mean of the tokens' probabilities; None if the engine has reported none."""
        return math.exp(self._sum / self._tokens) if self._tokens else None

    @property
    def characters(self) -> int | None:
        return self._inner.characters

    @property
    def text(self) -> str | None:
        return self._inner.text

    @property
    def finished(self) -> bool:
        return self._inner.finished

    @property
    def satisfied(self) -> bool:
        return self._inner.satisfied

    def cut(self) -> None:
        self._inner.cut()

    def feed(self, data: bytes) -> bytes:
        payloads = [self._without(payload) for payload in self._splitter.feed(data)]
        events = [b"data: %b\n\n" % payload.replace(b"\n", b"\ndata: ") for payload in payloads]
        inner = self._inner
        try:
            return inner.feed(b"".join(events))
        finally:
            self.events, self.text_seen, self.error = inner.events, inner.text_seen, inner.error

    def finish(self) -> bytes:
        return self._inner.finish()

    def _without(self, payload: bytes) -> bytes:
        """An event with null for its log probabilities, which are added to the sum."""
        if MARK not in payload:
            return payload
        try:
            for choice in _event(payload).choices:
                raw = bytes(choice.logprobs)
                if raw == b"null":
                    continue
                self._note(_logprobs(raw))
                # quotes inside strings are escaped, so these bytes occur only where the object does
                payload = payload.replace(raw, b"null", 1)
        except msgspec.DecodeError:
            raise EngineFailed("The engine sent log probabilities that cannot be read.") from None
        return payload

    def _note(self, logprobs: Any) -> None:
        for token in (logprobs.content if logprobs is not None else None) or ():
            if token.logprob is not None and math.isfinite(token.logprob):
                self._sum += token.logprob if token.logprob < 0 else 0.0  # a log probability is never above 0
                self._tokens += 1
