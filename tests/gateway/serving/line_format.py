"""A third wire format, of nobody's API: JSON lines, errors and headers of its own, the key in a header of its own.

It has what OpenAI's formats do without: a named last line, an error body with the request's id, a status that HTTP does
not name. The pipeline serves it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.errors import Overloaded, SlipstreamError
from contracts.generation import Caller, Sampling, TextPrompt
from contracts.usage import Usage
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import ReadError, decoded, error_in, texts_of
from gateway.wire.decode import decode
from gateway.wire.errors import Headers, status_of
from gateway.wire.prepared import Prepared, Target, output_limit, prepared
from gateway.wire.rate_state import RateLimitStatus
from gateway.wire.text_prompt import counted_texts
from gateway.wire.usage_tracker import UsageTracker

BUSY = 529


class Complete(msgspec.Struct, forbid_unknown_fields=True):
    """The request."""

    text: str
    model: str = "m"
    tokens: int = 4
    lines: bool = False
    """Streamed."""
    most: int = 1_000
    """Texts that are enough."""


class LineFormat:
    """`POST /complete`."""

    name = "line"
    heartbeat = b""

    def __init__(self) -> None:
        self.stream_headers: Headers = [(b"content-type", b"application/x-ndjson")]
        self._decoder = msgspec.json.Decoder(Complete)

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        key = headers.get(b"x-line-key")
        return b"" if key is None else b"Bearer " + key

    def decode(self, body: bytes) -> Complete:
        return decode(self._decoder, body, Complete, {"temperature"})

    async def prepare(self, asked: Complete, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        counted = await counted_texts(TextPrompt((asked.text,)), target, caller.organization_id)
        max_tokens = output_limit(asked.tokens, 4, counted.longest, target, "tokens")
        return prepared(
            counted, Sampling(max_tokens), request_id, caller, salt, target, stream=asked.lines, details=asked
        )

    def headers(self, request_id: str) -> Headers:
        return [(b"line-id", request_id.encode())]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        left = state.counter("requests_per_minute")
        return [] if left is None else [(b"line-left", b"%d" % left.remaining)]

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Lines:
        make = Lines if prepared.generation.stream else Whole
        return make(prepared, usage, read_error)

    def error_status(self, error: SlipstreamError) -> int:
        return BUSY if isinstance(error, Overloaded) else status_of(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return msgspec.json.encode({"wrong": error.code, "id": request_id})

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        return line("wrong", error.code)


def line(name: str, value: Any) -> bytes:
    return msgspec.json.encode({name: value}) + b"\n"


class Lines:
    """One text a line, and a last line with the count."""

    def __init__(self, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> None:
        assert isinstance(prepared.details, Complete)
        self._left = prepared.details.most
        self._usage = usage
        self._read_error = read_error
        self._splitter = EventSplitter()
        self.events = 0
        self.characters = 0
        self.text = None
        self.text_seen = False
        self.finished = False
        self.error: SlipstreamError | None = None

    @property
    def satisfied(self) -> bool:
        return not self._left

    @property
    def complete(self) -> bool:
        return self.finished and self.error is None

    def cut(self) -> None:
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        return b"".join(line("text", text) for text in self.texts(data))

    def finish(self) -> bytes:
        return line("end", (self._usage.total or Usage()).completion_tokens)

    def texts(self, data: bytes) -> list[str]:
        texts: list[str] = []
        for payload in self._splitter.feed(data):
            if payload == b"[DONE]":
                continue
            chunk = decoded(payload)
            self.error = self.error or error_in(chunk, self._read_error)
            if self.error is not None:
                continue
            self.events += 1
            self._usage.chunk(chunk)
            texts += [text for _, text in texts_of(chunk)][: self._left]
            self.finished = self.finished or any(choice.get("finish_reason") for choice in chunk["choices"])
        self._left -= len(texts)
        self.characters += sum(map(len, texts))
        self.text_seen = self.text_seen or bool(texts)
        return texts


class Whole(Lines):
    """All of it as one text."""

    def __init__(self, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> None:
        super().__init__(prepared, usage, read_error)
        self._whole = ""

    def feed(self, data: bytes) -> bytes:
        self._whole += "".join(self.texts(data))
        return b""

    def finish(self) -> bytes:
        return msgspec.json.encode({"whole": self._whole})
