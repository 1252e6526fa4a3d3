"""Tabby's completion endpoint as a wire format. Its path is OpenAI's too: `has_segments` distinguishes the requests,
and clients of both can read the response."""

from __future__ import annotations

from contracts.request_id import COMPLETION_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.endpoint_format import BodyFormat, FillFormat
from gateway.wire.fill.completion import completion_head, whole_completion
from gateway.wire.fill.request import filled_of
from gateway.wire.fill.transcoder import Answer, FillCollector
from gateway.wire.prepared import Prepared
from gateway.wire.tabby.prepare import prepare_segments
from gateway.wire.tabby.schema import SegmentsRequest
from gateway.wire.usage_tracker import UsageTracker


class TabbyFormat(BodyFormat[SegmentsRequest], FillFormat):
    """POST /v1/completions with `segments`. Never streamed."""

    name = "tabby"
    body_type = SegmentsRequest
    prepare = staticmethod(prepare_segments)

    def transcoder(
        self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError
    ) -> FillCollector:
        framing = _Framing(answer_id(COMPLETION_PREFIX, request_id), prepared.generation.public_model)
        return FillCollector(framing, filled_of(prepared), usage, read_error)


class _Framing:
    """Writes a response for either client: Tabby's agent needs `id` and the choice's `index` and `text`."""

    def __init__(self, answer_id: str, model: str) -> None:
        self._id = answer_id
        self._model = model

    def whole(self, answer: Answer) -> bytes:
        return whole_completion(completion_head(self._id, self._model, answer.created), answer, mode="standard")
