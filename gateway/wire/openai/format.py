"""OpenAI's generating endpoints as wire formats."""

from __future__ import annotations

import copy
import time

from contracts.generation import Caller, ChatPrompt, Tier
from contracts.request_id import CHAT_PREFIX, COMPLETION_PREFIX, answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.endpoint_format import EndpointFormat
from gateway.wire.fill.transcoder import fill_transcoder
from gateway.wire.format import Transcoder
from gateway.wire.openai.best_of import best_of
from gateway.wire.openai.collect import Collector, require_room
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.fill_answer import CompletionFraming
from gateway.wire.openai.prepare import prepare_chat, prepare_completion
from gateway.wire.openai.relay import Relay
from gateway.wire.openai.schema import ChatRequest, CompletionRequest
from gateway.wire.openai.tool_calls import forces_call
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker


class _OpenAiFormat(EndpointFormat):
    """The common part of both formats."""

    id_prefix: str
    """Prefix of the `id` inside responses."""

    def __init__(self, config: RequestConfig) -> None:
        self._max_whole_logprobs = config.max_whole_logprobs
        self._decoder = Decoder(config)

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        generation = prepared.generation
        if not generation.stream:
            return self._collector(request_id, prepared, usage, read_error)
        return Relay(
            self._response_id(request_id),
            generation.public_model,
            generation.choices,
            generation.include_usage,
            seen=usage,
            read_error=read_error,
            counts_characters=generation.tier is Tier.AUTOCOMPLETE,
            chat=isinstance(generation.prompt, ChatPrompt),
            service_tier=prepared.service_tier,
            running_usage=prepared.running_usage,
            forced_call=forces_call(generation.prompt),
        )

    def _collector(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Collector:
        generation = prepared.generation
        return Collector(
            self._response_id(request_id),
            generation.public_model,
            generation.choices,
            best_of=best_of(generation.sampling),
            seen=usage,
            read_error=read_error,
            chat=isinstance(generation.prompt, ChatPrompt),
            service_tier=prepared.service_tier,
            forced_call=forces_call(generation.prompt),
        )

    def _response_id(self, request_id: str) -> str:
        return answer_id(self.id_prefix, request_id)


class ChatFormat(_OpenAiFormat):
    """POST /v1/chat/completions."""

    name = "chat"
    id_prefix = CHAT_PREFIX

    def decode(self, body: bytes) -> ChatRequest:
        return self._decoder.chat(body)

    async def prepare(self, asked: ChatRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
        """Like `prepare_chat`, within `require_room`."""
        prepared = await prepare_chat(asked, request_id, caller, salt, target)
        require_room(prepared.generation, prepared.prompt_tokens, self._max_whole_logprobs)
        return prepared


class StreamAuditFormat(ChatFormat):
    """GET /v1/stream-audit: the headers and errors of a chat completion, under its own name."""

    name = "stream_audit"


class CompletionFormat(_OpenAiFormat):
    """POST /v1/completions, with `suffix` for fill-in-the-middle."""

    name = "completion"
    id_prefix = COMPLETION_PREFIX

    def decode(self, body: bytes) -> CompletionRequest:
        return self._decoder.completion(body)

    async def prepare(
        self, asked: CompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        """Like `prepare_completion`, within `require_room`."""
        prepared = await prepare_completion(asked, request_id, caller, salt, target)
        if prepared.details is None:
            require_room(prepared.generation, prepared.prompt_tokens, self._max_whole_logprobs)
        return prepared

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        if prepared.details is None:
            return super().transcoder(request_id, prepared, usage, read_error)
        generation, now = prepared.generation, int(time.time())
        response_id, model = self._response_id(request_id), generation.public_model
        framing = CompletionFraming(response_id, model, now, include_usage=generation.include_usage)
        return fill_transcoder(framing, prepared, usage, read_error)


class EngineCompletionFormat(CompletionFormat):
    """POST /v1/engines/{model}/completions: the model is in the path, not in the body."""

    name = "engine_completion"
    _model: str
    """The model in the path."""

    def of(self, model: str) -> EngineCompletionFormat:
        """The format of one model's path."""
        bound = copy.copy(self)
        bound._model = model
        return bound

    def decode(self, body: bytes) -> CompletionRequest:
        return self._decoder.engine_completion(body, self._model)
