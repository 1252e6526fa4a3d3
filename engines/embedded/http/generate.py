"""Serves one generation: submit, then relay the engine's news as events or as one body."""

from __future__ import annotations

from contracts.errors import EngineFailed, InvalidField
from engines.embedded.history import RequestUsage
from engines.embedded.http.bodies import ChatBody, CompletionBody, SamplingFields, decode_body
from engines.embedded.http.chat_format import ChatFormat
from engines.embedded.http.completion_format import CompletionFormat
from engines.embedded.http.decode import Decoder
from engines.embedded.http.errors import error_event
from engines.embedded.http.exchange import JSON, Exchange
from engines.embedded.http.wire import DONE, Format, encode
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta
from engines.embedded.service import Service


class GenerateHandlers:
    """POST /v1/chat/completions and POST /v1/completions."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._decoder = Decoder(service)

    async def chat(self, exchange: Exchange) -> None:
        """A conversation's next message."""
        body = decode_body(await exchange.body(self._service.config.max_body_bytes), ChatBody)
        request, use = await self._decoder.chat(body)
        form = ChatFormat(request, self._service.name, self._service.tokenizer, use)
        await self._serve(exchange, body, form, self._service.submit(request))

    async def completion(self, exchange: Exchange) -> None:
        """One or more prompts continued, or a gap filled."""
        body = decode_body(await exchange.body(self._service.config.max_body_bytes), CompletionBody)
        request = await self._decoder.completion(body)
        form = CompletionFormat(request, body, self._service.name, self._service.tokenizer)
        await self._serve(exchange, body, form, self._service.submit(request))

    async def _serve(self, exchange: Exchange, body: SamplingFields, form: Format, live: LiveRequest) -> None:
        rid = live.request.rid
        watch = exchange.on_disconnect(lambda: self._service.abort(rid))
        try:
            if body.stream:
                await self._stream(exchange, body, form, live)
            else:
                await self._whole(exchange, form, live)
        finally:
            watch.cancel()
            if not live.finished:
                self._service.abort(rid)

    async def _whole(self, exchange: Exchange, form: Format, live: LiveRequest) -> None:
        choices: list[list[Delta]] = [[] for _ in range(live.request.choices)]
        while not live.finished:
            for delta in await self._news(live):
                choices[delta.index].append(delta)
        await exchange.answer(200, form.whole(choices, live.usage()), JSON)

    async def _stream(self, exchange: Exchange, body: SamplingFields, form: Format, live: LiveRequest) -> None:
        options = body.stream_options
        include_usage = options is not None and bool(options.include_usage)
        running_usage = options is not None and bool(options.continuous_usage_stats)
        news = await self._news(live)
        # the status waits for the first news: until then a failure can still be told by it
        await exchange.start_events()
        while True:
            # all events of one step, or of several if the client is slow, leave in one write
            data = [form.chunk(delta, _usage(delta) if running_usage else b"null") for delta in news]
            if live.finished:
                if include_usage:
                    data.append(form.usage_chunk(encode(live.usage().wire())))
                data.append(DONE)
                await exchange.write(b"".join(data), last=True)
                return
            await exchange.write(b"".join(data))
            try:
                news = await self._news(live)
            except InvalidField as error:
                # an error event, and no [DONE]
                await exchange.write(error_event(error), last=True)
                return

    async def _news(self, live: LiveRequest) -> list[Delta]:
        news = await live.news()
        if live.failed:
            raise EngineFailed("The engine broke down.")
        for delta in news:
            if delta.finish is not None and delta.finish.reason == "error":
                raise InvalidField(str(delta.finish.matched))
        return news


def _usage(delta: Delta) -> bytes:
    """The running usage of one choice, as SGLang reports it."""
    prompt, completion = delta.prompt_tokens, delta.completion_tokens
    return encode(RequestUsage(prompt, prompt + completion, completion, delta.cached_tokens).wire())
