"""Passes an engine's events on from inside the socket's callback, without waking a task for each.

Once a stream flows, waiting for bytes and then sending them would cost two turns of the event loop per token. So
whoever hears the bytes sends them. The task sleeps until the engine ends or the client no longer keeps up; it then
waits for the client and takes the stream up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engines.http.engine_stream import EngineStream
from gateway.http.response import ResponseWriter
from gateway.serving.idle_timeout import Wait
from gateway.wire.format import Transcoder


class StreamForwarder:
    """One attempt's way from the engine to the client.

    on_begun: called with the engine's first event, before it is sent. on_text: called once generated text was sent.
    Both may raise, which ends the passage.
    """

    def __init__(
        self,
        stream: EngineStream,
        relay: Transcoder,
        answer: ResponseWriter,
        on_begun: Callable[[], None],
        on_text: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._relay = relay
        self._answer = answer
        self._on_begun = on_begun
        self._on_text = on_text
        self._begun = False
        self._text_seen = False
        self._wait: Wait
        self._pause: asyncio.Future[None]

    async def run(
        self,
        wait: Wait,
        event_timeout_s: float,
        on_silence: Callable[[], None],
        stall_timeout_s: float,
        cut: Callable[[], None],
    ) -> None:
        """Return at the engine's clean end. Raises EngineFailed when it broke off or sent what cannot be read.

        on_silence: called when the engine sends nothing for event_timeout_s after its first event. cut: called when the
        client reads nothing for stall_timeout_s.
        """
        loop, stream, answer = asyncio.get_running_loop(), self._stream, self._answer
        self._wait = wait
        self._after_event = (event_timeout_s, on_silence)
        while True:
            self._pause = loop.create_future()
            stream.on_change = self._changed
            try:
                self._changed()  # what came before we listened
                await self._pause
            finally:
                stream.on_change = None
            if not answer.full:
                break
            wait.begin(stall_timeout_s, cut)
            await answer.drained()
            wait.begin(event_timeout_s, on_silence)
        await stream.read()

    def _changed(self) -> None:
        """More bytes, or the end. Runs inside the socket's callback: what goes wrong here is the task's to hear."""
        pause = self._pause
        if pause.done():
            return
        try:
            self._pass_on()
        except Exception as error:
            pause.set_exception(error)
            return
        if self._stream.over or self._answer.full:
            pause.set_result(None)

    def _pass_on(self) -> None:
        data = self._stream.take()
        if not data:
            return
        relay = self._relay
        events = relay.feed(data)
        if not self._begun and (relay.events or relay.error):
            self._on_begun()
            self._begun = True
        if events:
            self._answer.events(events)
        if not self._text_seen and relay.text_seen:
            self._text_seen = True
            self._on_text()
        self._wait.begin(*self._after_event)
