"""The seam between the pipeline and the APIs that clients speak: a format is a folder here, and no branch there.

Engines are asked for a `Generation` and answer with OpenAI's chunks; a format makes the one of what its clients send
and what its clients read of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from gateway.wire.chunk import ReadError
from gateway.wire.errors import Headers
from gateway.wire.prepared import Prepared, Target
from gateway.wire.rate_state import RateLimitStatus
from gateway.wire.usage_tracker import UsageTracker

COMMENT = b": waiting\n\n"
"""A comment of an event stream, which clients skip. Some take `: ping` for the stream's end."""
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Asked(Protocol):
    """A decoded request."""

    @property
    def model(self) -> str:
        """The name or alias the client used; "" where its API has no models: the first model of the autocomplete tier
        that its key may use is meant."""
        ...


class Transcoder(Protocol):
    """Turns the events of one attempt into the client's answer. Pure: bytes in, bytes out.

    What of an answer is over is three questions:

                  true when                                       what the pipeline does then
        finished  every choice has the engine's finish_reason,    does not abort; the engine's count may still come
                  and none was aborted
        satisfied the client has all it gets, though not finished stops the engine; the answer counts as complete
                  (a rule has ended it, or `cut`)
        complete  finished, and without an error                  asks at the stream's end, unless satisfied: false is
                                                                  a broken answer, and the attempt has failed
    """

    events: int
    """The engine's events so far, errors not counted."""
    text_seen: bool
    """Some generated text, call or reasoning has gone by."""
    error: SlipstreamError | None
    """The engine reported an error inside its stream."""

    @property
    def characters(self) -> int | None:
        """Generated, of the first choice as the client has it once it is complete; None: not counted."""
        ...

    @property
    def text(self) -> str | None:
        """The same text itself; None: not kept."""
        ...

    @property
    def finished(self) -> bool:
        """Every choice has its finish_reason; `abort` is none."""
        ...

    @property
    def satisfied(self) -> bool:
        """It has all that the client gets, although the engine goes on: that is stopped, and the answer is complete."""
        ...

    @property
    def complete(self) -> bool:
        """The engine ended as it should."""
        ...

    def cut(self) -> None:
        """Nobody waits for the rest: unless it has finished, the answer ends here with the reason `stop` and what has
        come by now, perhaps nothing. Whatever is fed from now on tells of usage alone."""
        ...

    def feed(self, data: bytes) -> bytes:
        """What may be sent at once of the engine's bytes; b"" when there is nothing. Raises EngineFailed for bytes that
        cannot be read. Whatever tells a client that the answer is complete belongs to `finish`."""
        ...

    def finish(self) -> bytes:
        """What ends a complete answer, sent once the books are closed: a stream's last events, or all of a body."""
        ...


AskedT = TypeVar("AskedT", bound=Asked)


class WireFormat(Protocol[AskedT]):
    """One endpoint of one API. Holds no request's state."""

    @property
    def name(self) -> str:
        """Of the endpoint, in metrics, journals and traces."""
        ...

    @property
    def stream_headers(self) -> Headers:
        """Of an answer that is streamed."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """Bytes that clients skip, sent in a silent stream; b"": the format has none, and the headers wait for the
        first event."""
        ...

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The client's key, as an `Authorization` header has it; b"" when there is none."""
        ...

    def decode(self, body: bytes) -> AskedT:
        """Raises a RequestError that names the field."""
        ...

    async def prepare(self, asked: AskedT, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        """Count the prompt and fix the output limit. Raises a RequestError that names the field."""
        ...

    def headers(self, request_id: str) -> Headers:
        """Of every answer, errors included."""
        ...

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        """Of an answer that limits apply to."""
        ...

    def relay(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        """For a streamed answer. usage: is told of every event. read_error: the dialect's `Driver.error`."""
        ...

    def collect(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        """For an answer that is sent as one JSON body; otherwise as `relay`."""
        ...

    def error_status(self, error: SlipstreamError) -> int:
        """The HTTP status of a refusal."""
        ...

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        """The JSON of a refusal."""
        ...

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """What ends a stream that has begun, framed as its events are."""
        ...
