"""Answers a request from a recording, as `StreamForwarder` does from an engine's stream."""

from __future__ import annotations

import asyncio
import time

from contracts.errors import EngineFailed
from contracts.phases import Phase
from contracts.usage import Finish, Usage
from engines.drivers.error_bodies import engine_error
from gateway.http.server_timing import server_timing
from gateway.serving.attempt import Attempt, Client
from gateway.serving.recording import End, Reading
from gateway.supersession.in_flight_request import Superseded
from gateway.wire.written import last_event, text_event

SERVED_FROM = b"x-slipstream-served-from"
"""Header with the id of the request whose generation serves the response."""


class Follower:
    """Sends a recording's text to one attempt's client, by that client's own rules and in its own format."""

    def __init__(self, attempt: Attempt, reading: Reading, client_stall_timeout_s: float) -> None:
        self._attempt = attempt
        self._client: Client = attempt.client
        self._reading = reading
        self._stall_timeout_s = client_stall_timeout_s
        self._text_seen = False
        self._sent = False
        """Whether text was sent; the head may have been sent earlier."""

    async def run(self) -> bytes | None:
        """Return the response's final events; None if the recording ended early or left no useful text, and nothing was
        sent.

        Raises EngineFailed if the recording breaks off after sent text, like an engine's stream. Cuts a stalled client.
        """
        attempt, request = self._attempt, self._attempt.request
        attempt.begin(salted_cache=True, read_error=engine_error)
        try:
            if not await self._passed_on():
                return None
            if self._text_seen or request.superseded_by is None:
                self._begin_stream()
                attempt.finished(Usage())
                request.ran = True
            attempt.status = 200
            closing = attempt.transcoder.finish()
            request.characters = attempt.transcoder.characters
            return closing
        except asyncio.CancelledError:
            attempt.finish = Finish.CLIENT_GONE
            raise
        except EngineFailed as error:
            attempt.failed(error)
            raise
        finally:
            request.ran = request.ran or self._sent
            request.clock.end(Phase.DECODE if self._text_seen else Phase.ENGINE)

    async def _passed_on(self) -> bool:
        """Like `_pass_on`, but a newer keystroke of the client ends the response early."""
        try:
            async with self._client.in_flight:
                return await self._pass_on()
        except Superseded as newer:
            self._attempt.transcoder.cut()
            self._attempt.request.superseded_by = newer.by
            return True

    async def _pass_on(self) -> bool:
        """Forward text until the response is complete. Returns False if an engine must generate it."""
        transcoder, reading = self._attempt.transcoder, self._reading
        recording, model = reading.recording, self._attempt.request.generation.public_model
        while True:
            await reading.changed()
            end, text, tokens = recording.end, reading.take(), reading.take_tokens()
            event = text_event(text, recording.written.created, model, tokens) if text or tokens else b""
            events = transcoder.feed(event) if event else b""
            if end is not None and not transcoder.satisfied:
                if not self._sent and not (end is End.FINISHED and reading.worthwhile):
                    return False
                if end is End.BROKEN:
                    raise EngineFailed(
                        "The generation that this response shares stopped early. Try again.", retry_after_s=1
                    )
                # the leader's end also ends this text
                written = recording.written
                events += transcoder.feed(last_event(written.finish_reason or "stop", written.created, model))
            self._note_text()
            if events:
                await self._send(events)
            if transcoder.finished or transcoder.satisfied:
                return True

    def _note_text(self) -> None:
        if not self._text_seen and self._attempt.transcoder.text_seen:
            self._text_seen = True
            self._attempt.request.clock.end(Phase.ENGINE)
            self._attempt.request.clock.end(Phase.FIRST_TOKEN)

    def _begin_stream(self) -> None:
        """Add the headers of a followed response and begin its stream, unless it has begun."""
        request, response = self._attempt.request, self._client.response
        if request.served_from is None:
            request.served_from = self._reading.recording.request_id
            response.headers.append((SERVED_FROM, request.served_from.encode()))
        if request.generation.stream and not response.started:
            response.headers.append(server_timing(request.clock))
            response.start_stream()

    async def _send(self, events: bytes) -> None:
        response, wait = self._client.response, self._client.wait
        self._begin_stream()
        self._sent = True
        response.events(events)
        if response.full:
            timing = self._attempt.timing
            wait.begin(self._stall_timeout_s, self._client.watch.cut)
            timing.stalled(time.monotonic())
            try:
                await response.drained()
            finally:
                timing.resumed(time.monotonic(), engine_held=False)
                wait.end()
