"""Runs a small model's attempt at a request, whose answer is held back until it is complete and good enough."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from contracts.errors import HandedOver
from contracts.phases import Phase
from contracts.usage import Finish
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.metering.journal.records import Closed
from gateway.observability.measurement import Measurement
from gateway.serving.attempt import Attempt, Client
from gateway.serving.first import First
from gateway.serving.nobody import Unread
from gateway.serving.request import InferenceRequest
from gateway.wire.chunk import ReadError
from gateway.wire.judged_answer import JudgedAnswer
from gateway.wire.usage_tracker import UsageTracker

Judgement = Literal["kept", "unsure", "too_long", "late", "failed"]


class FirstAttempt(Attempt):
    """Attempt 0 of a request that has a `First`. It is billed only if it is kept; the journal records it either way,
    with the small model's name."""

    transcoder: JudgedAnswer

    def __init__(self, request: InferenceRequest, client: Client, first: First) -> None:
        self.held = HeldAnswer()
        super().__init__(request, client._replace(response=self.held), 0, asked=(first.target, first.prepared))
        self._first = first
        self.judgement: Judgement = "failed"
        self.deadline: asyncio.Timeout | None = None
        """The timeout that ends the attempt; without a deadline once the attempt is kept."""

    @property
    def kept(self) -> bool:
        """Whether the client gets the answer."""
        return self.judgement == "kept"

    @property
    def left(self) -> bool:
        """Whether the client left before the decision."""
        return self.judgement == "failed" and self.client.watch.since_s is not None

    @property
    def billed(self) -> bool:
        """Only a response that the client gets is billed. If the client left before the decision, no response was
        delivered."""
        return self.kept and super().billed

    def begin(self, *, salted_cache: bool, read_error: ReadError) -> None:
        """See `Attempt`; the client sees the name of the model that it requested."""
        request, generation = self.request, self.prepared.generation
        self.tracker = UsageTracker(1, salted_cache=salted_cache)
        if self._trace is not None:
            self._trace.tracker = self.tracker
        named = msgspec.structs.replace(generation, model=request.generation.model)
        shown = msgspec.structs.replace(self.prepared, generation=named)
        inner = request.wire_format.transcoder(request.request_id, shown, self.tracker, read_error)
        self.transcoder = JudgedAnswer(inner)

    def first_text(self) -> None:
        """The client has not received the text, so its wait continues."""

    def generated(self) -> None:
        """The client has no response yet, so its wait continues, for the large model's if this one is dropped."""
        self.request.clock.end(Phase.ENGINE)

    def judged(self) -> None:
        """Judge the small model's complete answer. Raises HandedOver unless the client gets it."""
        confidence, threshold = self.transcoder.confidence, self._first.cascade.min_confidence
        model = self.prepared.generation.model
        if self._first.capped and self.tracker.finish_reasons.get(0) == "length":
            self.judgement = "too_long"
            raise HandedOver(f"{model} had not ended its answer within its limit.")
        if confidence is None or confidence < threshold:
            self.judgement = "unsure"
            found = "no confidence" if confidence is None else f"a confidence of {confidence:.3g}"
            raise HandedOver(f"{model} answered with {found}; {threshold:g} is required.")
        self.judgement = "kept"
        self.request.clock.end(Phase.FIRST_TOKEN)
        if self.deadline is not None:
            self.deadline.reschedule(None)  # no deadline may interrupt its last journal record

    def measured(self) -> Measurement:
        """The measurement without token timing, because the client gets the response all at once."""
        measured = super().measured()
        return msgspec.structs.replace(measured, tpot_ms=None, itl_max_ms=None, gaps_over_100ms=None)

    def closed(self) -> Closed:
        """The record; if the deadline ended the attempt, the client did not."""
        closed = super().closed()
        if self.deadline is None or not self.deadline.expired():
            return closed
        finish = Finish.ENGINE_ERROR if closed.finish is Finish.CLIENT_GONE else closed.finish
        return msgspec.structs.replace(closed, error_code=HandedOver.code, finish=finish)


class HeldAnswer(Unread):
    """A response for a client, held until `give`."""

    __slots__ = ("_chunks", "_streams")

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._streams = False

    def start_stream(self) -> None:
        """Send nothing yet."""
        self._streams = True

    def events(self, data: bytes) -> None:
        """Send nothing yet."""
        self._chunks.append(data)

    def give(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Send the held response to the client, without its final events."""
        response.headers.extend(self.headers)
        if self._streams:
            response.headers.append(server_timing(request.clock))
            response.start_stream()
            response.events(b"".join(self._chunks))
