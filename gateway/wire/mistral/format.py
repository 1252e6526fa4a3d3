"""Mistral's endpoint for gaps as a wire format."""

from __future__ import annotations

import time

from contracts.generation import Caller
from contracts.request_id import COMPLETION_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.endpoint_format import BodyFormat, FillFormat
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.fill.transcoder import fill_transcoder
from gateway.wire.format import Transcoder
from gateway.wire.least_tokens import require_least
from gateway.wire.mistral.answer import FimFraming
from gateway.wire.mistral.schema import FimRequest
from gateway.wire.prepared import Prepared, Target, resampled, stop_texts
from gateway.wire.usage_tracker import UsageTracker


class FimFormat(BodyFormat[FimRequest], FillFormat):
    """POST /v1/fim/completions."""

    name = "fim"
    body_type = FimRequest

    async def prepare(self, asked: FimRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        """Prepare the gap, without snippets: this API has none. Raises a RequestError that names the field."""
        gap = FillRequest(
            model=asked.model,
            prefix=asked.prompt,
            suffix=asked.suffix or "",
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.random_seed,
            stop=stop_texts(asked.stop),
            stream=bool(asked.stream),
            min_confidence=asked.min_confidence,
            typed=False,
        )
        prepared = await prepare_fill(gap, request_id, caller, salt, target)
        least = require_least(asked.min_tokens or 0, prepared.generation.sampling.max_tokens, target)
        return resampled(
            prepared,
            min_tokens=least,
            frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty,
        )

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        response_id, model = answer_id(COMPLETION_PREFIX, request_id), prepared.generation.public_model
        return fill_transcoder(FimFraming(response_id, model, int(time.time())), prepared, usage, read_error)
