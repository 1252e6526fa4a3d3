"""The shape of responses, for the OpenAPI document only: `Answer` writes them.

No object here is closed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class InputDetails(msgspec.Struct):
    """cached_tokens: found in the prefix cache, and priced apart."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(msgspec.Struct):
    """reasoning_tokens: of the model's reasoning; part of the output."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """The engine's count, which is also billed."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct):
    """`type` is this deployment's code."""

    code: str
    message: str
    param: str | None
    type: str


class IncompleteDetails(msgspec.Struct):
    """The reason of a response that was cut."""

    reason: Literal["max_output_tokens", "content_filter"]


class Response(msgspec.Struct):
    """A response. `output` holds its items: reasoning, messages, calls."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    output: list[dict[str, Any]]
    store: bool
    """True if the response was stored: only for a request with `store` or `background`: true."""
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] = {}
    usage: ResponseUsage | None = None
