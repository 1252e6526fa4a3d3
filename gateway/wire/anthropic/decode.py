"""Client bytes to Anthropic's requests, with errors that name the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from contracts.errors import InvalidField, RequestError, UnsupportedField
from contracts.misfit import shortened
from gateway.wire.anthropic.schema import (
    UNSUPPORTED,
    WITHOUT_EFFECT,
    AssistantTurn,
    CountTokensRequest,
    MessagesRequest,
)
from gateway.wire.decode import NOT_PART, decode

CUSTOM = "custom"
_IN_A_TOOL = re.compile(r"tools\[(\d+)\]")
RequestT = TypeVar("RequestT", bound=CountTokensRequest)


class _ToolType(msgspec.Struct):
    type: str | None = None


class _Tools(msgspec.Struct):
    tools: list[_ToolType] = []


class BodyDecoder:
    """Holds the compiled decoders: making one costs milliseconds. Give a body's bytes to a `BodyShape` first."""

    def __init__(self) -> None:
        self._messages = msgspec.json.Decoder(MessagesRequest)
        self._count = msgspec.json.Decoder(CountTokensRequest)
        self._tools = msgspec.json.Decoder(_Tools)

    def messages(self, body: bytes) -> MessagesRequest:
        """Raises a RequestError that names the field."""
        return self._checked(self._messages, body, MessagesRequest)

    def count_tokens(self, body: bytes) -> CountTokensRequest:
        """Raises a RequestError that names the field."""
        return self._checked(self._count, body, CountTokensRequest)

    def _checked(self, decoder: msgspec.json.Decoder[RequestT], body: bytes, kind: type[RequestT]) -> RequestT:
        try:
            request = decode(decoder, body, kind, UNSUPPORTED, NOT_PART, without_effect=WITHOUT_EFFECT)
        except RequestError as error:
            raise self._by_tool_type(error, body) from None
        if isinstance(request.messages[-1], AssistantTurn):
            raise InvalidField(
                "The last message has the role 'assistant'. A response cannot be prefilled here: the "
                "conversation must end with a message of the user.",
                param=f"messages[{len(request.messages) - 1}].role",
            )
        if request.tool_choice is not None and not request.tools:
            raise InvalidField("'tool_choice' needs 'tools'.", param="tool_choice")
        return request

    def _by_tool_type(self, error: RequestError, body: bytes) -> RequestError:
        """The same error, or one about the type of a tool that only Anthropic's own service has: its other fields are
        not ours to name."""
        found = _IN_A_TOOL.match(error.param or "")
        if found is None:
            return error
        number = int(found.group(1))
        try:
            kind = self._tools.decode(body).tools[number].type
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError, RecursionError):
            return error
        if kind in (None, CUSTOM):
            return error
        param = f"tools[{number}].type"
        return UnsupportedField(
            f"Unsupported value for '{param}': {shortened(repr(kind))}. This deployment runs no tools of its own; "
            f"give a tool of the client, of type '{CUSTOM}' with an 'input_schema'.",
            param=param,
        )
