"""OpenAPI document of Anthropic's endpoints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.wire.anthropic.errors import OVERLOADED, AnthropicError
from gateway.wire.anthropic.schema import CountTokensRequest, MessagesRequest
from gateway.wire.operation import Operation

MESSAGES_PATH = "/v1/messages"
COUNT_TOKENS_PATH = "/v1/messages/count_tokens"


class AnswerText(msgspec.Struct, tag_field="type", tag="text"):
    """Text of the model."""

    text: str


class AnswerThoughts(msgspec.Struct, tag_field="type", tag="thinking"):
    """Thoughts of the model. Send them back with the message."""

    thinking: str
    signature: Literal["unsigned"]


class AnswerCall(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of one of the client's tools."""

    id: str
    name: str
    input: dict[str, Any]


class OutputDetails(msgspec.Struct):
    """Parts of `output_tokens`."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct):
    """The engine's count. The three counts of the prompt exclude each other; their sum is billed."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails


class AnthropicMessage(msgspec.Struct):
    """A whole answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerText | AnswerThoughts | AnswerCall]
    stop_reason: Literal[
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "model_context_window_exceeded"
    ]
    stop_sequence: str | None
    usage: MessageUsage
    context_management: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct):
    """The size of a prompt."""

    input_tokens: int


_REFUSALS = {OVERLOADED: "The deployment is overloaded; no limit of yours is reached. Try again after `Retry-After`."}
ANTHROPIC_OPERATIONS = (
    Operation(
        path=MESSAGES_PATH,
        name="create_message",
        summary="Generate text, for Anthropic's clients.",
        body=MessagesRequest,
        answer=AnthropicMessage,
        error=AnthropicError,
        refusals=_REFUSALS,
    ),
    Operation(
        path=COUNT_TOKENS_PATH,
        name="count_message_tokens",
        summary="Count the tokens of a message's prompt without generating a response.",
        body=CountTokensRequest,
        answer=TokenCount,
        error=AnthropicError,
        refusals=_REFUSALS,
        streamed=False,
    ),
)
