"""The interface between the pipeline and the APIs that clients speak: a format is a folder here, not a branch there.

Engines get a `Generation` and return OpenAI's chunks. A format converts its clients' requests to a `Generation`, and
the chunks to its clients' responses.
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
"""A comment of an event stream, which clients skip. Some clients take `: ping` for the stream's end."""
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Asked(Protocol):
    """A decoded request."""

    @property
    def model(self) -> str:
        """The name or alias that the client used; "" if its API has no models, which means the first model of the
        autocomplete tier that its key may use."""
        ...


class Transcoder(Protocol):
    """Turns the events of one attempt into the client's answer. Pure: bytes in, bytes out.

    Three properties describe the end of a response:

                  true when                                       what the pipeline does then
        finished  every choice has the engine's finish_reason,    does not abort; the engine's count may still come
                  and none was aborted
        satisfied the client has all it gets, though not finished stops the engine; the answer counts as complete
                  (a rule has ended it, or `cut`)
        complete  finished, and without an error                  checks it at the stream's end, unless satisfied: false
                                                                  means a broken answer and a failed attempt
    """

    __slots__ = ()
    events: int
    """The engine's events so far, without errors."""
    text_seen: bool
    """Whether generated text, a call or reasoning has passed."""
    error: SlipstreamError | None
    """The error that the engine reported inside its stream."""

    @property
    def characters(self) -> int | None:
        """Characters of the first choice's text, as the client has it at the end; None if they are not counted."""
        ...

    @property
    def text(self) -> str | None:
        """The text that `characters` counts; None if it is not kept."""
        ...

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish_reason, which `abort` is not."""
        ...

    @property
    def satisfied(self) -> bool:
        """Whether the client has all that it gets although the engine continues. The pipeline then stops the engine,
        and the response is complete."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the engine finished without an error."""
        return self.finished and self.error is None

    def cut(self) -> None:
        """Drop the rest: an unfinished response ends here with the reason `stop` and the text so far, which may be
        empty. Later events only count for usage."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take the engine's bytes and return the bytes that may be sent at once. Raises EngineFailed for invalid bytes.
        The events that mark a complete response belong to `finish`."""
        ...

    def finish(self) -> bytes:
        """The end of a complete response, sent after the attempt is closed: a stream's last events or a whole body."""
        ...


AskedT = TypeVar("AskedT", bound=Asked)


class WireFormat(Protocol[AskedT]):
    """One endpoint of one API, without the state of any request."""

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
        """Bytes that clients skip, sent in a silent stream; b"" if the format has none, so that the headers wait for
        the first event."""
        ...

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The client's key, as an `Authorization` header has it; b"" if there is none."""
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
        """The transcoder of a streamed response or of one JSON body. usage: receives every event. read_error: the
        dialect's `Driver.error`."""
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
