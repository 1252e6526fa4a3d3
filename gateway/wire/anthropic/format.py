"""Anthropic's endpoints as wire formats."""

from __future__ import annotations

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from contracts.request_id import MESSAGE_PREFIX, answer_id
from gateway.wire.anthropic.answer import MessageReader, StreamSink, WholeSink, message_of
from gateway.wire.anthropic.decode import BodyDecoder
from gateway.wire.anthropic.errors import error_body, error_status
from gateway.wire.anthropic.prepare import prepare_messages
from gateway.wire.anthropic.rate_headers import rate_headers
from gateway.wire.anthropic.schema import CountTokensRequest, MessagesRequest
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.endpoint_format import EndpointFormat
from gateway.wire.errors import Headers
from gateway.wire.format import Transcoder
from gateway.wire.prepared import Prepared, Target
from gateway.wire.rate_state import RateLimitStatus
from gateway.wire.usage_tracker import UsageTracker


class _AnthropicFormat(EndpointFormat):
    """The common part of both formats."""

    heartbeat = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, config: RequestConfig) -> None:
        self._decoder = BodyDecoder()

    async def prepare(
        self, asked: CountTokensRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        """Prepared like a chat completion. Raises a RequestError that names the field."""
        return await prepare_messages(asked, request_id, caller, salt, target)

    def headers(self, request_id: str) -> Headers:
        """Anthropic's name for the id, and the one of all other APIs here."""
        return [(b"request-id", request_id.encode()), *super().headers(request_id)]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        return rate_headers(state)

    def relay(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        message = message_of(answer_id(MESSAGE_PREFIX, request_id), prepared.generation)
        return MessageReader(StreamSink(message), prepared, usage, read_error)

    def collect(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        message = message_of(answer_id(MESSAGE_PREFIX, request_id), prepared.generation)
        return MessageReader(WholeSink(message), prepared, usage, read_error)

    def error_status(self, error: SlipstreamError) -> int:
        return error_status(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """No `message_stop` follows it."""
        return b"event: error\n" + super().error_event(error, request_id)


class MessagesFormat(_AnthropicFormat):
    """POST /v1/messages."""

    name = "messages"

    def decode(self, body: bytes) -> MessagesRequest:
        """Raises a RequestError that names the field."""
        return self._decoder.messages(body)


class CountTokensFormat(_AnthropicFormat):
    """POST /v1/messages/count_tokens."""

    name = "count_tokens"

    def decode(self, body: bytes) -> CountTokensRequest:
        """Raises a RequestError that names the field."""
        return self._decoder.count_tokens(body)

    def counted(self, prepared: Prepared, request_id: str) -> bytes:
        """The prompt's tokens, cached ones included."""
        return msgspec.json.encode({"input_tokens": prepared.prompt_tokens})
