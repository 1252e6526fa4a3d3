"""Forwards an engine's events inside the socket's callback, without waking a task for each.

Once a stream flows, waiting for bytes and then sending them would cost two turns of the event loop per token. So the
callback that receives the bytes sends them. The task sleeps until the engine ends or the client reads too slowly; it
then waits for the client and resumes the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from contracts.errors import EngineFailed, EngineTimeout
from engines.http.engine_stream import EngineStream
from gateway.serving.attempt import Attempt
from gateway.serving.config import ServingConfig
from gateway.wire.chunk import UnreadableEvent


class StreamForwarder:
    """Forwards one attempt's stream from the engine to the client.

    on_begun: called with the engine's first event, before it is sent; an error that it raises ends the forwarding.
    on_text: called with the first text, call or reasoning.
    """

    def __init__(
        self,
        stream: EngineStream,
        attempt: Attempt,
        config: ServingConfig,
        on_begun: Callable[[Attempt], None],
        on_text: Callable[[Attempt], None],
    ) -> None:
        self._stream = stream
        self._attempt = attempt
        self._transcoder = attempt.transcoder
        self._response = attempt.client.response
        self._wait = attempt.client.wait
        self._timing = attempt.timing
        self._config = config
        self._on_begun = on_begun
        self._on_text = on_text
        self._begun = False
        self._text_seen = False
        self._finished = False
        self._unread_bytes = 0
        """Unread bytes of the engine while the client is slow."""
        self._silent = False
        self._pause: asyncio.Future[bool]

    async def run(self) -> None:
        """Return at the engine's clean end, or once the client has its whole answer. Nothing that may be sent waits.

        Raises EngineFailed if the engine broke off or sent unreadable data, and EngineTimeout if it fell silent. A
        client is cut if it takes longer than `client_stall_timeout_s` to read what is buffered for it.
        """
        wait, config = self._wait, self._config
        wait.begin(config.first_event_timeout_s, self._give_up)
        try:
            while not await self._forwarded():
                await self._drained()
            self._stream.on_change = None
            if not self._transcoder.satisfied:
                await self._stream.read()
        except EngineFailed:
            if self._silent:
                raise EngineTimeout("The engine stopped answering.", retry_after_s=1) from None
            raise
        finally:
            self._stream.on_change = None
            wait.end()

    async def _forwarded(self) -> bool:
        """Forward until the engine or the answer ends; False if the client no longer keeps up."""
        self._pause = self._stream.loop.create_future()
        self._stream.on_change = self._changed
        self._changed()  # for bytes that are already here
        return await self._pause

    async def _drained(self) -> None:
        """Wait for the client, while `_changed` records when the engine wrote."""
        wait, config, stream, timing = self._wait, self._config, self._stream, self._timing
        wait.begin(config.client_stall_timeout_s, self._attempt.client.watch.cut)
        timing.stalled(time.monotonic())
        try:
            await self._response.drained()
        finally:
            timing.resumed(time.monotonic(), engine_held=stream.paused)
        wait.begin(config.event_timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._silent = True
        self._stream.close()

    def _changed(self) -> None:
        """Called for more bytes, or the end. It runs in the socket's callback, so the task raises its errors."""
        pause = self._pause
        if pause.done():
            self._noted()
            return
        try:
            self._pass_on()
        except Exception as error:
            pause.set_exception(error)
            return
        satisfied, full = self._transcoder.satisfied, self._response.full
        if satisfied or full or self._stream.over:
            pause.set_result(satisfied or not full)  # now, because the client may read on before the task wakes

    def _noted(self) -> None:
        """Record an arrival while the task waits for the client. The bytes stay unread for now."""
        unread_bytes = self._stream.unread_bytes
        if unread_bytes > self._unread_bytes:
            self._unread_bytes = unread_bytes
            self._timing.arrived(time.monotonic())

    def _pass_on(self) -> None:
        data = self._stream.take()
        if not data:
            return
        now_s = time.monotonic()
        transcoder = self._transcoder
        seen = transcoder.events
        noted, self._unread_bytes = self._unread_bytes, 0
        self._attempt.size.add(len(data))
        try:
            events = transcoder.feed(data)
        except UnreadableEvent as failure:
            if self._begun:
                self._response.events(failure.before)
            raise
        if not self._begun and self._attempt.tracker.aborted:
            return  # the engine gave up before the client got anything, so another may begin; its count is still read
        if not self._begun and (transcoder.events or transcoder.error):
            self._on_begun(self._attempt)
            self._begun = True
        if transcoder.text_seen and not self._text_seen:
            self._on_text(self._attempt)  # before it is sent, because this process may then have to wait for a core
        if events:
            self._response.events(events)
        if (recording := self._attempt.request.recording) is not None:
            recording.feed(data)
        if (sample := self._attempt.request.sample) is not None:
            sample.transcript.feed(data)
        if self._text_seen:
            if transcoder.events != seen and not noted and not self._finished:
                self._timing.arrived(now_s)
            self._finished = transcoder.finished
        elif transcoder.text_seen:
            self._text_seen = True
            self._timing.first_text(now_s)
            self._finished = transcoder.finished
        if transcoder.events != seen:  # comments, an engine's heartbeats, are no answer
            self._wait.begin_again(self._config.event_timeout_s, now_s)
