"""OpenAI's request bodies, with the honoured fields. Only this module knows OpenAI's request field names.

A field is honoured, accepted but only recorded or without effect here (`user`, `metadata`, …, listed in
docs/reference/api.md), or refused by name (`UNSUPPORTED_*`) because ignoring it would change the response. A field
outside OpenAI's API is unknown and also refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from engines.tokenizer.healing import LONGEST_PIECE
from gateway.wire.fill.request import AskedConfidence

MAX_CHOICES = 16
MAX_STOP = 16
MAX_LOGIT_BIAS = 300
MAX_PROMPTS = 64
MAX_MESSAGES = 10_000
MAX_PARTS = 10_000
"""Limit per message. gateway/wire/body_shape.py limits a body's shape as a whole."""
MAX_TOOLS = 128
MAX_CALLS = 128
MAX_ANNOTATIONS = 1_000

Text = Annotated[str, Meta(max_length=4_000_000)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Positive = Annotated[int, Meta(ge=1, le=10_000_000)]
LeastTokens = Annotated[int, Meta(ge=0, le=10_000_000)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
StopText = Annotated[str, Meta(min_length=1, max_length=1_024)]
Stop = StopText | Annotated[list[StopText], Meta(max_length=MAX_STOP)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
MAX_MODEL_NAME = 256
"""Limit in characters."""
TOKEN_ID_TEXT = "^[0-9]{1,10}$"
LogitBias = Annotated[
    dict[str, Bias],
    Meta(max_length=MAX_LOGIT_BIAS, extra_json_schema={"propertyNames": {"pattern": TOKEN_ID_TEXT}}),
]
"""Names are checked after they are known to be few: msgspec would try a pattern before it counts."""
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Tag = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[str, Tag], Meta(max_length=16)]
CacheControl = Annotated[dict[str, Any], Meta(max_length=16)]
"""Anthropic's mark for a prompt to be cached, which some clients send to every API. It has no effect: engines cache
every prompt."""


class TextPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="text"):
    """A part of text."""

    text: Text
    cache_control: CacheControl | None = None


class RefusalPart(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="refusal"):
    """A refusal the assistant gave earlier."""

    refusal: Text


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An image's URL; only `data:` URLs are taken."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag="image_url"):
    """An image."""

    image_url: ImageUrl
    cache_control: CacheControl | None = None


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    """Name and JSON arguments of the assistant's call."""

    name: Tag
    arguments: Text


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """The assistant's earlier call. Its type is always sent on: engines may require it."""

    id: Tag
    function: FunctionCall
    type: Literal["function"] = "function"
    index: Annotated[int, Meta(ge=0, lt=MAX_CALLS)] | msgspec.UnsetType | None = msgspec.UNSET


class SystemMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Text | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)]
    name: Tag | None = None
    cache_control: CacheControl | None = None


class DeveloperMessage(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="role", tag="developer"
):
    """Instructions, by OpenAI's newer name; engines know `system`."""

    content: Text | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)]
    name: Tag | None = None
    cache_control: CacheControl | None = None


class UserMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="role", tag="user"):
    """The user's message."""

    content: Text | Annotated[list[TextPart | ImagePart], Meta(max_length=MAX_PARTS)]
    name: Tag | None = None
    cache_control: CacheControl | None = None


class AssistantMessage(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="role", tag="assistant"
):
    """The assistant's message; accepts all fields of our own responses, so that clients can append them unchanged."""

    content: Text | Annotated[list[TextPart | RefusalPart], Meta(max_length=MAX_PARTS)] | None = None
    name: Tag | None = None
    refusal: Text | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_CALLS)] | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    """vLLM's name for `reasoning_content`; the decoder makes it None."""
    audio: None = None
    annotations: Annotated[list[msgspec.Raw], Meta(max_length=MAX_ANNOTATIONS)] | None = None
    """Accepted, never decoded and left out: the decoder makes it None."""
    function_call: None = None
    cache_control: CacheControl | None = None


class ToolMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="role", tag="tool"):
    """A tool's result."""

    content: Text | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)] | None
    """Null from a tool that returns nothing; the decoder makes it empty."""
    tool_call_id: Tag
    name: Tag | None = None
    cache_control: CacheControl | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function the model may call; `parameters` is a JSON schema."""

    name: Annotated[
        str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$", description="letters, digits, _ and -")
    ]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tool the model may call."""

    type: Literal["function"]
    function: FunctionDefinition
    cache_control: CacheControl | None = None


class NamedFunction(msgspec.Struct, forbid_unknown_fields=True):
    """Names one function."""

    name: Tag


class NamedTool(msgspec.Struct, forbid_unknown_fields=True):
    """Forces one tool."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"schema_": "schema"}):
    """A named schema."""

    name: Tag
    schema_: dict[str, Any] | None = None
    description: Text | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Free text."""


class JsonObjectFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    """JSON by schema."""

    json_schema: JsonSchema


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of streaming."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's option: every event carries the usage so far."""
    include_obfuscation: bool | None = None


class Common(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields both endpoints share."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_NAME)]
    max_tokens: Positive | None = None
    n: Choices | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    stop: Stop | None = None
    logit_bias: LogitBias | None = None
    min_tokens: LeastTokens | None = None
    """Engines' own parameter: the answer does not end before it has this many tokens."""
    ignore_eos: bool | None = None
    """Engines' own parameter: like `min_tokens` with the value of the output limit."""
    extra_body: dict[str, msgspec.Raw] | None = None
    """Other parameters of engines, undecoded (`engine_parameters.py`). The decoder moves them here from the body's top.
    Clients may also send this field itself: SDKs have an option of this name, which writes them at the top."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Tag | None = None


class ChatRequest(Common, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    safety_identifier: Tag | None = None
    prompt_cache_key: Tag | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    store: bool | None = None
    modalities: Annotated[list[Literal["text"]], Meta(max_length=1)] | None = None


class CompletionRequest(Common, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/completions."""

    prompt: Text | list[str | TokenId | list[TokenId]]
    """Text, texts, token ids, or lists of token ids; never mixed."""
    suffix: Text | None = None
    echo: bool | None = None
    best_of: Choices | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    begins_with: Annotated[str, Meta(min_length=1, max_length=LONGEST_PIECE)] | None = None
    """Our own field, for text to continue: each choice's output must begin with this text, which the response leaves
    out. Its tokens count as output."""
    min_confidence: AskedConfidence = None
    """Our own field, for gaps: a completion whose tokens' probabilities have a lower geometric mean is empty. The stop
    rules of editors' APIs then apply too, and a stream is sent at once, at its end."""


class EngineCompletionRequest(CompletionRequest, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/engines/{model}/completions, as OpenAI's first clients and Copilot's old plugin send it."""

    model: Annotated[str, Meta(max_length=MAX_MODEL_NAME, extra_json_schema={"const": ""})] = ""
    """The path names the model. This field may repeat it; another name is refused."""
    nwo: Tag | None = None
    """A repository's name, from Copilot's plugin; accepted without effect."""
    extra: dict[str, Any] | None = None
    """Data about the file, from Copilot's plugin; accepted without effect."""


UNSUPPORTED_CHAT = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "moderation",
        "prediction",
        "prompt_cache_options",
        "prompt_cache_retention",
        "verbosity",
        "web_search_options",
    }
)
"""OpenAI's fields that are refused, because ignoring one would change the answer or the bill."""
