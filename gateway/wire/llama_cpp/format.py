"""llama.cpp's two endpoints as wire formats, for llama.vim, llama.vscode and Continue."""

from __future__ import annotations

from typing import TypeVar

from contracts.errors import SlipstreamError
from gateway.wire.chunk import ReadError
from gateway.wire.endpoint_format import BodyFormat, FillFormat
from gateway.wire.fill.request import filled_of
from gateway.wire.fill.transcoder import fill_transcoder
from gateway.wire.format import Transcoder
from gateway.wire.llama_cpp.answer import Framing, Wanted
from gateway.wire.llama_cpp.decode import require_served
from gateway.wire.llama_cpp.errors import error_body
from gateway.wire.llama_cpp.prepare import prepare_completion, prepare_infill
from gateway.wire.llama_cpp.schema import Common, InfillRequest, LlamaCompletionRequest
from gateway.wire.llama_cpp.several import Several
from gateway.wire.prepared import Prepared
from gateway.wire.usage_tracker import UsageTracker

CommonT = TypeVar("CommonT", bound=Common)


class _LlamaCppFormat(BodyFormat[CommonT], FillFormat):
    """The common part of both formats."""

    not_part = "is not a llama.cpp field that Slipstream knows."

    def decode(self, body: bytes) -> CommonT:
        request = super().decode(body)
        require_served(request)
        return request

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        filled = filled_of(prepared)
        wanted = filled.details
        assert isinstance(wanted, Wanted)
        if wanted.several:
            return Several(prepared.generation, filled, wanted, usage, read_error)
        framing = Framing(prepared.generation, wanted, truncated=filled.truncated)
        return fill_transcoder(framing, prepared, usage, read_error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return error_body(error)


class InfillFormat(_LlamaCppFormat[InfillRequest]):
    """POST /infill."""

    name = "infill"
    body_type = InfillRequest
    prepare = staticmethod(prepare_infill)


class LlamaCompletionFormat(_LlamaCppFormat[LlamaCompletionRequest]):
    """POST /completion."""

    name = "llama_completion"
    body_type = LlamaCompletionRequest
    prepare = staticmethod(prepare_completion)
