"""Bodies of vLLM's endpoints for token ids, and the shape of their responses."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.wire.openai.schema import MAX_MESSAGES, MAX_MODEL_NAME, MAX_TOOLS, Message, Text, TokenId, Tool

Name = Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_NAME)]


class TokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /tokenize: of a text, or of a conversation."""

    model: Name
    prompt: Text | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    """For a conversation only."""
    chat_template_kwargs: dict[str, Any] | None = None
    """For a conversation only."""
    add_special_tokens: bool | None = None
    """For a text, true by default: begin with the model's own first token, as a completion does."""
    return_token_strs: bool | None = None
    """Whether to return the text of each token as well."""


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /detokenize."""

    model: Name
    tokens: list[TokenId]


class Tokenized(msgspec.Struct):
    """Token ids as they reach an engine. max_model_len: longest prompt and response together."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(msgspec.Struct):
    """The text of token ids."""

    prompt: str
