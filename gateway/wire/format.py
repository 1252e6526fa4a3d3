"""The seam between the pipeline and the APIs that clients speak: a format is a folder here, and no branch there.

Engines get a `Generation` and return OpenAI's chunks; a format converts its clients' requests to the one, and the other
to its clients' responses.
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

    Three properties describe the end of a response:

                  true when                                       what the pipeline does then
        finished  every choice has the engine's finish_reason,    does not abort; the engine's count may still come
                  and none was aborted
        satisfied the client has all it gets, though not finished stops the engine; the answer counts as complete
                  (a rule has ended it, or `cut`)
        complete  finished, and without an error                  asks at the stream's end, unless satisfied: false is
                                                                  a broken answer, and the attempt has failed
    """

    __slots__ = ()
    events: int
    """The engine's events so far, errors not counted."""
    text_seen: bool
    """Some generated text, call or reasoning has passed."""
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
        """The client has all that it gets, although the engine goes on: the engine is stopped, and the response is
        complete."""
        ...

    @property
    def complete(self) -> bool:
        """The engine ended as it should."""
        return self.finished and self.error is None

    def cut(self) -> None:
        """Drop the rest: an unfinished response ends here with the reason `stop` and the text so far, perhaps none.
        Later events count for usage only."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take the engine's bytes; returns the bytes that may be sent at once. Raises EngineFailed for invalid bytes.
        The events that mark a complete response belong to `finish`."""
        ...

    def finish(self) -> bytes:
        """The end of a complete response, sent once the books are closed: a stream's last events, or a whole body."""
        ...


AskedT = TypeVar("AskedT", bound=Asked)


class WireFormat(Protocol[AskedT]):
    """One endpoint of one API. Holds no request's state."""

    @property
    def name(self) -> str:
        """Name of the endpoint, in metrics, journals and traces."""
        ...

    @property
    def stream_headers(self) -> Headers:
        """Headers of a streamed response."""
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
        """Headers of every response, errors included."""
        ...

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        """Headers of a response that limits apply to."""
        ...

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        """For a streamed response, or for one JSON body. usage: gets every event. read_error: the dialect's
        `Driver.error`."""
        ...

    def error_status(self, error: SlipstreamError) -> int:
        """The HTTP status of a refusal."""
        ...

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        """The JSON of a refusal."""
        ...

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """The error at the end of a stream that has begun, framed like its events."""
        ...


class CountingFormat(WireFormat[AskedT], Protocol[AskedT]):
    """An endpoint that counts a request's prompt and generates nothing."""

    def counted(self, prepared: Prepared, request_id: str) -> bytes:
        """The JSON of the response."""
        ...
