"""Decodes client bytes to OpenAI's requests, with errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from contracts.engine_parameters import may_pass
from contracts.errors import InvalidField, InvalidJson, RequestError
from contracts.misfit import shortened
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.decode import Others, decode
from gateway.wire.openai.foreign_names import IN_CHAT, IN_COMPLETION, NOT_PASSED_ON, WITHOUT_EFFECT
from gateway.wire.openai.schema import (
    MAX_MODEL_NAME,
    TOKEN_ID_TEXT,
    UNSUPPORTED_CHAT,
    AssistantMessage,
    ChatRequest,
    Common,
    CompletionRequest,
    EngineCompletionRequest,
    RefusalPart,
    ToolCall,
    ToolMessage,
)

OTHERS = Others("extra_body", may_pass)
_TOKEN_ID = re.compile(TOKEN_ID_TEXT)
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Decoder:
    """Holds the compiled msgspec decoders: creating one takes milliseconds, using it microseconds.

    A decoder builds all of a body's values before it checks any limit of a list: give the body's bytes to a
    `BodyShape` first.
    """

    def __init__(self, config: RequestConfig | None = None) -> None:
        """config: None for the defaults."""
        self._config = config or RequestConfig()
        self._chat = msgspec.json.Decoder(ChatRequest)
        self._completion = msgspec.json.Decoder(CompletionRequest)
        self._engine_completion = msgspec.json.Decoder(EngineCompletionRequest)

    def chat(self, body: bytes) -> ChatRequest:
        """Raises a RequestError that names the field."""
        request = decode(
            self._chat, body, ChatRequest, UNSUPPORTED_CHAT, NOT_PASSED_ON, IN_CHAT, WITHOUT_EFFECT, OTHERS
        )
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                message.annotations = None
                if message.reasoning_content is None:
                    message.reasoning_content = message.reasoning
                message.reasoning = None
                message.tool_calls = message.tool_calls or None
            elif isinstance(message, ToolMessage) and message.content is None:
                message.content = ""
        if body.find(b'"cache_control"') >= 0:
            _leave_out_cache_control(request)
        self._require_plain_arguments(request)
        _require_objects_as_arguments(request)
        _require_token_ids(request)
        return request

    def require_arguments(self, request: ChatRequest) -> None:
        """Check the arguments of earlier calls, and write empty ones as `{}`. Raises a RequestError that names the
        field."""
        self._require_plain_arguments(request)
        _require_objects_as_arguments(request)

    def completion(self, body: bytes) -> CompletionRequest:
        """Raises a RequestError that names the field."""
        request = decode(
            self._completion, body, CompletionRequest, (), NOT_PASSED_ON, IN_COMPLETION, WITHOUT_EFFECT, OTHERS
        )
        _require_token_ids(request)
        return request

    def engine_completion(self, body: bytes, model: str) -> EngineCompletionRequest:
        """model: from the path. Raises a RequestError that names the field."""
        request = decode(
            self._engine_completion, body, EngineCompletionRequest, (), NOT_PASSED_ON, {}, WITHOUT_EFFECT, OTHERS
        )
        _require_token_ids(request)
        if request.model not in ("", model):
            raise InvalidField(
                f"'model' is {shortened(repr(request.model))}, but the path names {shortened(repr(model))}. Leave "
                "'model' out.",
                param="model",
            )
        # a URL may hold 64 kB; this shortens no name that a body could have
        request.model = model if len(model) <= MAX_MODEL_NAME else shortened(model)
        return request

    def _require_plain_arguments(self, request: ChatRequest) -> None:
        """Count the structure of calls' `arguments` like the body's, because templates and prefix chains see it
        decoded; the calls of one request are counted together."""
        shape = BodyShape(self._config)
        for param, call in _calls(request):
            try:
                shape.feed(call.function.arguments.encode())
            except RequestError as error:
                if isinstance(error, InvalidJson):
                    raise InvalidField(f"'{param}' is nested too deeply.", param=param) from None
                error.param = param
                raise
            shape.end()


def _leave_out_cache_control(request: ChatRequest) -> None:
    for message in request.messages:
        message.cache_control = None
        for part in message.content if isinstance(message.content, list) else ():
            if not isinstance(part, RefusalPart):
                part.cache_control = None
    for tool in request.tools or ():
        tool.cache_control = tool.function.cache_control = None


def _require_objects_as_arguments(request: ChatRequest) -> None:
    """Engines' templates expect a call's `arguments` to be an object. Several engines write an empty text for a call
    without arguments, and clients send it back: empty text, blanks and `null` become `{}`."""
    for param, call in _calls(request):
        if call.function.arguments.strip() in ("", "null"):
            call.function.arguments = "{}"
            continue
        try:
            _decode_object(call.function.arguments)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise InvalidField(
                f"'{param}' is not a JSON object. Send the call's arguments as an object; {{}} for a call without any.",
                param=param,
            ) from None


def _calls(request: ChatRequest) -> Iterator[tuple[str, ToolCall]]:
    """The assistant's earlier calls, each with the path of its arguments in the body."""
    for at, message in enumerate(request.messages):
        if isinstance(message, AssistantMessage):
            for number, call in enumerate(message.tool_calls or ()):
                yield f"messages[{at}].tool_calls[{number}].function.arguments", call


def _require_token_ids(request: Common) -> None:
    for name in request.logit_bias or ():
        if not _TOKEN_ID.match(name):
            raise InvalidField(
                f"'logit_bias' has {shortened(repr(name))} as a token id; token ids must be decimal numbers.",
                param="logit_bias",
            )
