"""Mistral's endpoint for gaps as a wire format."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from contracts.errors import SlipstreamError, UnsupportedField
from contracts.generation import Caller
from contracts.request_id import COMPLETION_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.decode import decode
from gateway.wire.errors import Headers, body_of, status_of
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import Filled, FillRequest
from gateway.wire.fill.transcoder import FillCollector, FillRelay
from gateway.wire.format import EVENT_STREAM
from gateway.wire.key_header import authorization_of
from gateway.wire.mistral.answer import FimFraming
from gateway.wire.mistral.schema import FimRequest
from gateway.wire.prepared import Prepared, Target
from gateway.wire.rate_state import RateLimitStatus
from gateway.wire.usage_tracker import UsageTracker


class FimFormat:
    """POST /v1/fim/completions."""

    name = "fim"
    stream_headers = EVENT_STREAM

    def __init__(self, config: RequestConfig) -> None:
        self._decoder = msgspec.json.Decoder(FimRequest)

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        return authorization_of(headers)

    def decode(self, body: bytes) -> FimRequest:
        """Raises a RequestError that names the field."""
        return decode(self._decoder, body, FimRequest)

    async def prepare(self, asked: FimRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        if asked.min_tokens:
            raise UnsupportedField(
                f"'min_tokens' is {asked.min_tokens}; no least length can be asked for here. Leave it out, or give 0.",
                param="min_tokens",
            )
        stop = asked.stop
        gap = FillRequest(
            model=asked.model,
            prefix=asked.prompt,
            suffix=asked.suffix or "",
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.random_seed,
            stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
            stream=bool(asked.stream),
        )
        prepared = await prepare_fill(gap, request_id, caller, salt, target)
        sampling = msgspec.structs.replace(
            prepared.generation.sampling,
            frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty,
        )
        generation = msgspec.structs.replace(prepared.generation, sampling=sampling)
        return msgspec.structs.replace(prepared, generation=generation)

    def headers(self, request_id: str) -> Headers:
        return [(b"x-request-id", request_id.encode())]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        """Mistral's clients read none."""
        return []

    def relay(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> FillRelay:
        return FillRelay(_framing(request_id, prepared), _filled(prepared), usage, read_error)

    def collect(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> FillCollector:
        return FillCollector(_framing(request_id, prepared), _filled(prepared), usage, read_error)

    def error_status(self, error: SlipstreamError) -> int:
        return status_of(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        """Clients of this shape read the status and show the text; people read OpenAI's JSON."""
        return body_of(error)

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """No [DONE] follows it."""
        return b"data: " + body_of(error) + b"\n\n"


def _framing(request_id: str, prepared: Prepared) -> FimFraming:
    return FimFraming(answer_id(COMPLETION_PREFIX, request_id), prepared.generation.model, int(time.time()))


def _filled(prepared: Prepared) -> Filled:
    assert isinstance(prepared.details, Filled)
    return prepared.details
