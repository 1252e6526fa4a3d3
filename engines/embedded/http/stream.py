"""Relays the engine's deltas of one request as events.

While the client keeps up, the call that delivers the deltas also writes the events, without waking a task. That call
happens once per step for every stream, and waking a task would cost more than the write.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.errors import SlipstreamError
from engines.embedded.history import RequestUsage
from engines.embedded.http.errors import error_event
from engines.embedded.http.exchange import Exchange
from engines.embedded.http.wire import DONE, Format, encode
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta


class EventStream:
    """One streamed response."""

    def __init__(
        self,
        exchange: Exchange,
        form: Format,
        live: LiveRequest,
        *,
        continuous_usage_stats: bool,
        include_usage: bool,
        extended: bool = False,
    ) -> None:
        """continuous_usage_stats: usage in every event. include_usage: usage in a separate event at the end. extended:
        SGLang's additions, if any, in another event before it."""
        self._extended = extended
        self._exchange = exchange
        self._form = form
        self._live = live
        self._continuous_usage_stats = continuous_usage_stats
        self._include_usage = include_usage
        self._unsent = b""
        """Events that are not sent yet because the client is slow."""

    async def run(self) -> None:
        """Send everything. Raises EngineFailed, and the error of a sequence that fails before the first event."""
        live = self._live
        news = await live.news()
        require_no_error(news)
        # wait for the first delta, because until then a failure can still set the status
        await self._exchange.start_events()
        while not live.finished and error_in(news) is None:
            await self._exchange.write(self._unsent + self._events(news))
            self._unsent = b""
            live.relay = self._relay
            # relay the deltas that arrived while the client was slow
            if self._relay():
                await live.wait()
            live.relay = None
            news = live.take()
        error = error_in(news)
        if error is None:
            await self._exchange.write(self._unsent + self._events(news) + self._end(), last=True)
            return
        # end with an error event instead of [DONE]
        valid = [delta for delta in news if delta.finish is None or delta.finish.error is None]
        await self._exchange.write(self._unsent + self._events(valid) + error_event(error), last=True)

    def _relay(self) -> bool:
        """Write new deltas; return False if the task must write the rest."""
        live = self._live
        if live.finished or live.failed:
            return False
        news = live.peek()
        if not news:
            return True
        if error_in(news) is not None:
            return False
        self._unsent = self._events(live.take())
        if not self._exchange.try_write(self._unsent):
            live.relay = None
            return False
        self._unsent = b""
        return True

    def _events(self, news: Sequence[Delta]) -> bytes:
        """The events of one step, or of several if the client is slow."""
        chunk = self._form.chunk
        return b"".join([chunk(delta, _usage(delta) if self._continuous_usage_stats else b"null") for delta in news])

    def _end(self) -> bytes:
        usage = self._live.usage()
        extension = usage.extension() if self._extended else None
        ending = self._form.extension_chunk(encode(extension)) if extension is not None else b""
        return ending + (self._form.usage_chunk(encode(usage.wire())) if self._include_usage else b"") + DONE


def error_in(news: Sequence[Delta]) -> SlipstreamError | None:
    """The error of the first sequence that failed; None if none failed."""
    for delta in news:
        if delta.finish is not None and delta.finish.error is not None:
            return delta.finish.error
    return None


def require_no_error(news: Sequence[Delta]) -> None:
    """Raise the error of `error_in`, if any."""
    error = error_in(news)
    if error is not None:
        raise error


def _usage(delta: Delta) -> bytes:
    """The running usage of one choice, in SGLang's form."""
    prompt, completion = delta.prompt_tokens, delta.completion_tokens
    return encode(RequestUsage(prompt, prompt + completion, completion, delta.cached_tokens).wire())
