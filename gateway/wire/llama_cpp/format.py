"""llama.cpp's two endpoints as wire formats, for llama.vim, llama.vscode and Continue."""

from __future__ import annotations

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.endpoint_format import FillFormat
from gateway.wire.fill.request import Filled, filled_of
from gateway.wire.fill.transcoder import FillCollector, FillRelay
from gateway.wire.format import Transcoder
from gateway.wire.llama_cpp.answer import Framing, Wanted
from gateway.wire.llama_cpp.decode import Decoder
from gateway.wire.llama_cpp.errors import error_body
from gateway.wire.llama_cpp.prepare import prepare_completion, prepare_infill
from gateway.wire.llama_cpp.schema import InfillRequest, LlamaCompletionRequest
from gateway.wire.llama_cpp.several import SeveralCollector, SeveralRelay
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker


class _LlamaCppFormat(FillFormat):
    """The common part of both formats."""

    def __init__(self, config: RequestConfig) -> None:
        self._decoder = Decoder()

    def relay(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        filled, wanted = _details(prepared)
        if wanted.several:
            return SeveralRelay(prepared.generation, filled, wanted, usage, read_error)
        framing = Framing(prepared.generation, wanted, truncated=filled.truncated)
        return FillRelay(framing, filled, usage, read_error)

    def collect(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        filled, wanted = _details(prepared)
        if wanted.several:
            return SeveralCollector(prepared.generation, filled, wanted, usage, read_error)
        framing = Framing(prepared.generation, wanted, truncated=filled.truncated)
        return FillCollector(framing, filled, usage, read_error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return error_body(error)


def _details(prepared: Prepared) -> tuple[Filled, Wanted]:
    filled = filled_of(prepared)
    assert isinstance(filled.details, Wanted)
    return filled, filled.details


class InfillFormat(_LlamaCppFormat):
    """POST /infill."""

    name = "infill"

    def decode(self, body: bytes) -> InfillRequest:
        """Raises a RequestError that names the field."""
        return self._decoder.infill(body)

    async def prepare(
        self, asked: InfillRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        return await prepare_infill(asked, request_id, caller, salt, target)


class LlamaCompletionFormat(_LlamaCppFormat):
    """POST /completion."""

    name = "llama_completion"

    def decode(self, body: bytes) -> LlamaCompletionRequest:
        """Raises a RequestError that names the field."""
        return self._decoder.completion(body)

    async def prepare(
        self, asked: LlamaCompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        return await prepare_completion(asked, request_id, caller, salt, target)
