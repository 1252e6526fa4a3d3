"""Mistral's endpoint for gaps as a wire format."""

from __future__ import annotations

import time

import msgspec

from contracts.generation import Caller
from contracts.request_id import COMPLETION_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.decode import NULL_IS_ABSENCE, decode
from gateway.wire.endpoint_format import FillFormat
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest, filled_of
from gateway.wire.fill.transcoder import FillCollector, FillRelay
from gateway.wire.least_tokens import require_least
from gateway.wire.mistral.answer import FimFraming
from gateway.wire.mistral.schema import FimRequest
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker


class FimFormat(FillFormat):
    """POST /v1/fim/completions."""

    name = "fim"

    def __init__(self, config: RequestConfig) -> None:
        self._decoder = msgspec.json.Decoder(FimRequest)

    def decode(self, body: bytes) -> FimRequest:
        """Raises a RequestError that names the field."""
        return decode(self._decoder, body, FimRequest, without_effect=NULL_IS_ABSENCE)

    async def prepare(self, asked: FimRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        """The gap without snippets: this API knows none. Raises a RequestError that names the field."""
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
            min_confidence=asked.min_confidence,
            typed=False,
        )
        prepared = await prepare_fill(gap, request_id, caller, salt, target)
        least = require_least(asked.min_tokens or 0, prepared.generation.sampling.max_tokens, target)
        sampling = msgspec.structs.replace(
            prepared.generation.sampling,
            min_tokens=least,
            frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty,
        )
        generation = msgspec.structs.replace(prepared.generation, sampling=sampling)
        return msgspec.structs.replace(prepared, generation=generation)

    def relay(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> FillRelay:
        return FillRelay(_framing(request_id, prepared), filled_of(prepared), usage, read_error)

    def collect(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> FillCollector:
        return FillCollector(_framing(request_id, prepared), filled_of(prepared), usage, read_error)


def _framing(request_id: str, prepared: Prepared) -> FimFraming:
    return FimFraming(answer_id(COMPLETION_PREFIX, request_id), prepared.generation.public_model, int(time.time()))
