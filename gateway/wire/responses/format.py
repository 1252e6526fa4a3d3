"""OpenAI's Responses API as a wire format."""

from __future__ import annotations

import copy
import time

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from contracts.request_id import RESPONSE_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.endpoint_format import EndpointFormat
from gateway.wire.openai.decode import Decoder
from gateway.wire.prepared import Prepared, Target
from gateway.wire.responses.answer import Answer
from gateway.wire.responses.decode import RequestDecoder
from gateway.wire.responses.envelope import state
from gateway.wire.responses.events import event_of
from gateway.wire.responses.prepare import Asked, items_of, prepare_response
from gateway.wire.responses.schema import CountedRequest, ResponsesRequest
from gateway.wire.usage_tracker import UsageTracker


class ResponsesFormat(EndpointFormat):
    """POST /v1/responses."""

    name = "responses"
    _request_id = response_id = ""
    answer: Answer | None = None
    """The newest attempt's answer, if the format is bound to a request."""
    queued = b""
    """JSON of the queued response; empty if the request is served now."""

    def __init__(self, config: RequestConfig) -> None:
        self._decoder = RequestDecoder(ResponsesRequest)
        self._require_arguments = Decoder(config).require_arguments

    def of(self, request_id: str, response_id: str) -> ResponsesFormat:
        """The format of one request. It keeps the answer, which a failed stream's last event continues and a store
        saves."""
        bound = copy.copy(self)
        bound._request_id, bound.response_id = request_id, response_id
        return bound

    def decode(self, body: bytes) -> Asked:
        request = self._decoder.decode(body)
        return Asked(request, items=items_of(request))

    async def prepare(self, asked: Asked, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        return await prepare_response(asked, request_id, caller, salt, target, self._require_arguments)

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Answer:
        stream = prepared.generation.stream
        if request_id != self._request_id:  # a copy at another engine is not the client's
            return Answer(answer_id(RESPONSE_PREFIX, request_id), prepared, usage, read_error, stream=stream)
        self.answer = Answer(self.response_id, prepared, usage, read_error, stream=stream)
        return self.answer

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """The event `response.failed`."""
        if self.answer is not None:
            return self.answer.failed(error)
        response = {
            "id": answer_id(RESPONSE_PREFIX, request_id),
            "object": "response",
            "created_at": int(time.time()),
            **state("failed", [], error=error),
        }
        return event_of("response.failed", 0, {"response": response})


class InputTokensFormat(ResponsesFormat):
    """POST /v1/responses/input_tokens."""

    name = "responses_input_tokens"

    def __init__(self, config: RequestConfig) -> None:
        super().__init__(config)
        self._counted = RequestDecoder(CountedRequest)

    def decode(self, body: bytes) -> Asked:
        request = self._counted.decode(body)
        whole = ResponsesRequest(**msgspec.structs.asdict(request))
        return Asked(whole, items=items_of(request))

    def counted(self, prepared: Prepared, request_id: str) -> bytes:
        """The count that is billed for a response to the same input."""
        return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": prepared.prompt_tokens})
