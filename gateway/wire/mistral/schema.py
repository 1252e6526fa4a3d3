"""Mistral's FIM request and answers. Only this module knows their field names.

In addition to Mistral's own fields, the request may have the two penalties, which Continue sends to every server of
this kind, and `min_confidence`, which is ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.wire.fill.request import AskedConfidence

Text = Annotated[str, Meta(max_length=4_000_000)]
StopText = Annotated[str, Meta(min_length=1, max_length=1_024)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class FimRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/fim/completions."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt: Text
    """All text before the gap."""
    suffix: Text | None = None
    """All text after the gap."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """The model does not end before it has written this many tokens; a stop text or a stop rule may. Above 0 only if
    the model's engines support it."""
    stream: bool | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] | None = None
    random_seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    metadata: dict[str, Any] | None = None
    """Accepted without effect."""
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    min_confidence: AskedConfidence = None
    """Our own field: an answer whose tokens' probabilities have a lower geometric mean is empty. A stream is then sent
    at once, at its end."""


class FimUsage(msgspec.Struct):
    """The engine's count, which is also billed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class FimMessage(msgspec.Struct):
    """The text in the gap."""

    content: str
    role: Literal["assistant"] = "assistant"
    tool_calls: None = None


class FimChoice(msgspec.Struct):
    """The only one."""

    index: int
    message: FimMessage
    finish_reason: Literal["stop", "length"]


class FimCompletion(msgspec.Struct):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[FimChoice]
    usage: FimUsage
