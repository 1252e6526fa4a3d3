"""The shape of answers, for the OpenAPI document only: `Collector` and `Relay` write them byte by byte.

Fields that engines add stay in the answers, so no object here is closed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from contracts.fill_in_the_middle import Healing


class PromptDetails(msgspec.Struct):
    """cached_tokens: found in the prefix cache, and priced apart."""

    cached_tokens: int = 0


class TokenUsage(msgspec.Struct):
    """The engine's count, which is also billed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class ChatAnswerMessage(msgspec.Struct):
    """The assistant's message, or the tools it wants called."""

    role: Literal["assistant"]
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(msgspec.Struct):
    """One of `n` responses."""

    index: int
    message: ChatAnswerMessage
    finish_reason: str | None
    logprobs: dict[str, Any] | None = None


class ChatCompletion(msgspec.Struct):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage | None = None


class TextChoice(msgspec.Struct):
    """One continuation."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: dict[str, Any] | None = None


class TextCompletion(msgspec.Struct):
    """A whole answer."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: TokenUsage | None = None


class ModelEntry(msgspec.Struct):
    """A model that the key may use."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tier: Literal["autocomplete", "chat"]
    context_tokens: int
    context_length: int
    max_model_len: int
    aliases: list[str]
    task: Literal["text", "embedding", "rerank"] = "text"
    description: str = ""
    healing: Healing | None = None
    """The part of a half-typed word in a gap that the engine writes again; absent if it writes none."""


class ModelList(msgspec.Struct):
    """All models that the key may use."""

    object: Literal["list"]
    data: list[ModelEntry]
