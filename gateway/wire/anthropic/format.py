"""Anthropic's endpoints as wire formats."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from contracts.errors import RequestError, SlipstreamError
from contracts.request_id import MESSAGE_PREFIX, answer_id
from gateway.wire.anthropic.answer import MessageReader, StreamSink, WholeSink, message_of
from gateway.wire.anthropic.decode import by_tool_type, require_turn
from gateway.wire.anthropic.errors import error_body, error_status
from gateway.wire.anthropic.prepare import prepare_messages
from gateway.wire.anthropic.rate_headers import rate_headers
from gateway.wire.anthropic.schema import UNSUPPORTED, WITHOUT_EFFECT, CountTokensRequest, MessagesRequest
from gateway.wire.chunk import ReadError
from gateway.wire.endpoint_format import BodyFormat
from gateway.wire.errors import Headers
from gateway.wire.format import Transcoder
from gateway.wire.prepared import Prepared
from gateway.wire.rate_state import RateLimitStatus
from gateway.wire.usage_tracker import UsageTracker

RequestT = TypeVar("RequestT", bound=CountTokensRequest)


class _AnthropicFormat(BodyFormat[RequestT]):
    """The common part of both formats."""

    heartbeat = b'event: ping\ndata: {"type":"ping"}\n\n'
    unsupported = UNSUPPORTED
    without_effect = WITHOUT_EFFECT
    prepare = staticmethod(prepare_messages)

    def decode(self, body: bytes) -> RequestT:
        try:
            request = super().decode(body)
        except RequestError as error:
            raise by_tool_type(error, body) from None
        require_turn(request)
        return request

    def headers(self, request_id: str) -> Headers:
        """The request id under Anthropic's name and under the name that all APIs here use."""
        return [(b"request-id", request_id.encode()), *super().headers(request_id)]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        return rate_headers(state)

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        message = message_of(answer_id(MESSAGE_PREFIX, request_id), prepared.generation)
        sink = StreamSink(message) if prepared.generation.stream else WholeSink(message)
        return MessageReader(sink, prepared, usage, read_error)

    def error_status(self, error: SlipstreamError) -> int:
        return error_status(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """The error as the last event; no `message_stop` follows it."""
        return b"event: error\n" + super().error_event(error, request_id)


class MessagesFormat(_AnthropicFormat[MessagesRequest]):
    """POST /v1/messages."""

    name = "messages"
    body_type = MessagesRequest


class CountTokensFormat(_AnthropicFormat[CountTokensRequest]):
    """POST /v1/messages/count_tokens."""

    name = "count_tokens"
    body_type = CountTokensRequest

    def counted(self, prepared: Prepared, request_id: str) -> bytes:
        """The prompt's tokens, cached ones included."""
        return msgspec.json.encode({"input_tokens": prepared.prompt_tokens})
