"""Serves generations: submits a request, then relays the engine's deltas as events or as one body."""

from __future__ import annotations

import time
import uuid
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from engines.embedded.http.bodies import ChatBody, CompletionBody, SamplingFields, StreamOptions, decode_body
from engines.embedded.http.chat_format import ChatFormat
from engines.embedded.http.completion_format import CompletionFormat
from engines.embedded.http.decode import Decoder
from engines.embedded.http.exchange import JSON, Exchange
from engines.embedded.http.probe import PROBE_BYTES, ChatProbe, CompletionProbe, ProbeFields, ProbeGate
from engines.embedded.http.stream import EventStream, require_no_error
from engines.embedded.http.wire import Format
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta
from engines.embedded.service import Service
from engines.embedded.spans import EngineSpans
from telemetry.current_request import CurrentRequest, current_request
from telemetry.trace_context import parse

PreparedT = TypeVar("PreparedT")


class GenerateHandlers:
    """POST /v1/chat/completions and POST /v1/completions."""

    def __init__(self, service: Service, spans: EngineSpans | None = None) -> None:
        """spans: None to trace nothing."""
        self._service = service
        self._spans = spans
        self._decoder = Decoder(service)
        self._probes = ProbeGate()

    async def chat(self, exchange: Exchange) -> None:
        """Generate the next message of a conversation."""
        raw = await self._body(exchange)
        with self._passage(exchange, raw, ChatProbe):
            body = decode_body(raw, ChatBody)
            request, use = await self._prepared(exchange, body, self._decoder.chat(body))
            form = ChatFormat(request, self._service.name, self._service.tokenizer, use)
            await self._serve(exchange, body, form, self._service.submit(request))

    async def completion(self, exchange: Exchange) -> None:
        """Continue one or more prompts, or fill a gap."""
        raw = await self._body(exchange)
        with self._passage(exchange, raw, CompletionProbe):
            body = decode_body(raw, CompletionBody)
            request = await self._prepared(exchange, body, self._decoder.completion(body))
            form = CompletionFormat(request, body, self._service.name, self._service.tokenizer)
            await self._serve(exchange, body, form, self._service.submit(request))

    async def _body(self, exchange: Exchange) -> bytes:
        return await exchange.body(PROBE_BYTES if exchange.observer else self._service.config.max_body_bytes)

    def _passage(self, exchange: Exchange, raw: bytes, kind: type[ProbeFields]) -> AbstractContextManager[None]:
        return self._probes.passage(raw, kind) if exchange.observer else nullcontext()

    async def _prepared(
        self, exchange: Exchange, body: SamplingFields, work: Coroutine[Any, Any, PreparedT]
    ) -> PreparedT:
        # no client knows an id that is generated here, so none can abort by it or read its usage
        rid = body.rid or uuid.uuid4().hex
        names = CurrentRequest(rid)
        if self._spans is not None and (parent := parse(exchange.header(b"traceparent"))) is not None:
            names.trace_id = parent.trace_id
        current_request.set(names)
        return await self._service.preparation.run(rid, work, exchange.on_disconnect)

    async def _serve(self, exchange: Exchange, body: SamplingFields, form: Format, live: LiveRequest) -> None:
        rid, submitted_ns = live.request.rid, time.time_ns()
        watch = exchange.on_disconnect(lambda: self._service.abort(rid))
        try:
            if body.stream:
                await self._stream(exchange, body, form, live)
            else:
                await self._whole(exchange, body, form, live)
        finally:
            watch.cancel()
            if self._spans is not None:
                traceparent = exchange.header(b"traceparent")
                self._spans.served(traceparent, exchange.path, exchange.arrived_ns, submitted_ns, live)
            if not live.finished:
                self._service.abort(rid)

    async def _whole(self, exchange: Exchange, body: SamplingFields, form: Format, live: LiveRequest) -> None:
        choices: list[list[Delta]] = [[] for _ in range(live.request.choices)]
        while not live.finished:
            news = await live.news()
            require_no_error(news)
            for delta in news:
                choices[delta.index].append(delta)
        extended = bool(body.return_spec_tokens_details)
        await exchange.answer(200, form.whole(choices, live.usage(), extended=extended), JSON)

    async def _stream(self, exchange: Exchange, body: SamplingFields, form: Format, live: LiveRequest) -> None:
        options = body.stream_options or StreamOptions()
        stream = EventStream(
            exchange,
            form,
            live,
            continuous_usage_stats=bool(options.continuous_usage_stats),
            include_usage=bool(options.include_usage),
            extended=bool(body.return_spec_tokens_details),
        )
        await stream.run()
