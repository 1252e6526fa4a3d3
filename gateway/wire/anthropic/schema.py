"""Anthropic's request bodies, with the honoured fields. Only this module knows Anthropic's request field names.

As in OpenAI's schema, a field is honoured, accepted without effect, or refused by name (`UNSUPPORTED`) because ignoring
it would change the response.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.wire.image_url import ImageType
from gateway.wire.openai.schema import (
    MAX_MESSAGES,
    MAX_MODEL_NAME,
    MAX_PARTS,
    MAX_STOP,
    MAX_TOOLS,
    CacheControl,
    Positive,
    StopText,
    Tag,
    Text,
    TopP,
)

MAX_NAME = 128


class TextBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Text."""

    text: Text
    cache_control: CacheControl | None = None
    citations: Annotated[list[msgspec.Raw], Meta(max_length=MAX_PARTS)] | None = None
    """Sent back from an earlier answer; without effect."""


class Base64Source(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="base64"):
    """An image's bytes."""

    media_type: ImageType
    data: str


class UrlSource(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="url"):
    """An image elsewhere; refused."""

    url: str


class ImageBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="image"):
    """An image."""

    source: Base64Source | UrlSource
    cache_control: CacheControl | None = None


class ToolUseBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    """The assistant's earlier call."""

    id: Tag
    name: Tag
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: dict[str, Any] | None = None
    """Sent back from an earlier answer; without effect."""
    toolset_name: None = None


class ToolResultBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="tool_result"):
    """A call's result."""

    tool_use_id: Tag
    content: Text | Annotated[list[TextBlock | ImageBlock], Meta(max_length=MAX_PARTS)] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None
    toolset_name: None = None


class ThinkingBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="thinking"):
    """The assistant's earlier thoughts."""

    thinking: Text
    signature: Text | None = None
    """Never checked, because nothing is signed here."""


class RedactedThinkingBlock(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="redacted_thinking"):
    """Thoughts that only Anthropic's own service can read; left out of the prompt."""

    data: Text


UserBlock = TextBlock | ImageBlock | ToolResultBlock
AssistantBlock = TextBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock


class UserTurn(msgspec.Struct, forbid_unknown_fields=True, tag_field="role", tag="user"):
    """The user's message, or the results of calls."""

    content: Text | Annotated[list[UserBlock], Meta(max_length=MAX_PARTS)]


class AssistantTurn(msgspec.Struct, forbid_unknown_fields=True, tag_field="role", tag="assistant"):
    """The assistant's message."""

    content: Text | Annotated[list[AssistantBlock], Meta(max_length=MAX_PARTS)]


class SystemTurn(msgspec.Struct, forbid_unknown_fields=True, tag_field="role", tag="system"):
    """Instructions in the middle of a conversation, as Claude Code sends them."""

    content: Text | Annotated[list[TextBlock], Meta(max_length=MAX_PARTS)]


Turn = UserTurn | AssistantTurn | SystemTurn


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """A tool of the client that the model may call; `input_schema` is a JSON schema."""

    name: Annotated[
        str, Meta(min_length=1, max_length=MAX_NAME, pattern="^[a-zA-Z0-9_-]+$", description="letters, digits, _ and -")
    ]
    input_schema: dict[str, Any]
    description: Text | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Annotated[list[Literal["direct"]], Meta(max_length=1)] | None = None
    defer_loading: Literal[False] | None = None
    eager_input_streaming: bool | None = None
    """Without effect: each call's arguments are sent whole."""


class AutoChoice(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="auto"):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="any"):
    """The model calls some tool."""

    disable_parallel_tool_use: bool | None = None


class NamedChoice(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="tool"):
    """The model calls this tool."""

    name: Tag
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="none"):
    """The model calls none."""


ToolChoice = AutoChoice | AnyChoice | NamedChoice | NoChoice
Display = Literal["summarized", "omitted"]


class ThinkingOn(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="enabled"):
    """The model thinks before it answers, where it can."""

    budget_tokens: Positive | None = None
    """Without effect: engines have no such limit. `max_tokens` includes the thoughts."""
    display: Display | None = None


class ThinkingAdaptive(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="adaptive"):
    """The model's default."""

    display: Display | None = None


class ThinkingOff(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="disabled"):
    """The model does not think, where it can be asked not to."""


Thinking = ThinkingOn | ThinkingAdaptive | ThinkingOff


class JsonOutput(
    msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="json_schema", rename={"of": "schema"}
):
    """JSON by schema."""

    of: dict[str, Any]


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The form of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """Without effect: models disagree about its levels, and some refuse one that they do not know."""
    format: JsonOutput | None = None


class RequestMetadata(msgspec.Struct, forbid_unknown_fields=True):
    """The client's name for its user or conversation."""

    user_id: Tag | None = None


class CountTokensRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/messages/count_tokens."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_NAME)]
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: Text | Annotated[list[TextBlock], Meta(max_length=MAX_PARTS)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    context_management: dict[str, Any] | None = None
    """Nothing is edited here, and the answer reports that no edit was applied."""


class MessagesRequest(CountTokensRequest, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/messages."""

    max_tokens: Positive
    """Lowered to the room that the prompt leaves in the model's context, if it exceeds that."""
    stop_sequences: Annotated[list[StopText], Meta(max_length=MAX_STOP)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """Only if the model's engines support it."""
    metadata: RequestMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None


UNSUPPORTED = frozenset({"container", "diagnostics", "inference_geo", "mcp_servers", "speed"})
"""Anthropic's fields that are refused, because ignoring one would change the answer or the bill."""
WITHOUT_EFFECT = {"mcp_servers": (b"[]",), "speed": (b'"standard"',)}
"""Values with which these fields have no effect."""
