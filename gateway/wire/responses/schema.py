"""OpenAI's Responses API: its request and its items. Only this module knows these field names.

Items of requests and of responses have the same types, so that a client can append a response's output to its next
input unchanged, and the store can read both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from gateway.wire.openai.schema import (
    MAX_MODEL_NAME,
    JsonObjectFormat,
    Metadata,
    Positive,
    Tag,
    Temperature,
    Text,
    TextFormat,
    TopP,
)

MAX_ITEMS = 10_000
MAX_PARTS = 10_000
MAX_TOOLS = 128
"""Limit of functions, including functions in namespaces."""
MAX_NOTES = 1_000
MAX_NEW_ITEMS = 20
"""Limit of items in one request to a conversation."""
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
ToolName = Annotated[
    str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$", description="letters, digits, _ and -")
]
Note = Annotated[dict[str, Any], Meta(max_length=64)]
"""An object that clients send or send back, and that has no effect here."""
Notes = Annotated[list[msgspec.Raw], Meta(max_length=MAX_NOTES)]


class Typed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"):
    """A part, an item, a tool or a format: `type` names its kind."""


class InputText(Typed, kw_only=True, tag="input_text"):
    """A part of text."""

    text: Text
    prompt_cache_breakpoint: Note | None = None
    """Without effect: engines cache every prompt."""


class InputImage(Typed, kw_only=True, tag="input_image"):
    """An image; only `data:` URLs are taken."""

    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None
    prompt_cache_breakpoint: Note | None = None


class OutputText(Typed, kw_only=True, tag="output_text"):
    """The model's text."""

    text: Text
    annotations: Notes | None = None
    logprobs: Notes | None = None


class Refusal(Typed, tag="refusal"):
    """A refusal that the model gave earlier."""

    refusal: Text


class SummaryText(Typed, tag="summary_text"):
    """A summary of reasoning. This deployment writes none."""

    text: Text


class ReasoningText(Typed, tag="reasoning_text"):
    """The model's reasoning."""

    text: Text


Part: TypeAlias = InputText | InputImage | OutputText | Refusal
OutputPart: TypeAlias = InputText | InputImage


class MessageItem(Typed, kw_only=True, tag="message"):
    """A message. `type` may be left out."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Text | Annotated[list[Part], Meta(max_length=MAX_PARTS)]
    id: Tag | None = None
    status: Status | None = None
    phase: Tag | None = None


class FunctionCallItem(Typed, kw_only=True, tag="function_call", rename={"async_": "async"}):
    """The model's earlier call of a function."""

    call_id: Tag
    name: Tag
    arguments: Text
    namespace: Tag | None = None
    id: Tag | None = None
    status: Status | None = None
    caller: Note | None = None
    async_: bool | None = None


class FunctionCallOutputItem(Typed, kw_only=True, tag="function_call_output"):
    """The result of a call."""

    call_id: Tag
    output: Text | Annotated[list[OutputPart], Meta(max_length=MAX_PARTS)]
    name: Tag | None = None
    namespace: Tag | None = None
    id: Tag | None = None
    status: Status | None = None
    caller: Note | None = None


class CustomToolCallItem(Typed, kw_only=True, tag="custom_tool_call", rename={"async_": "async"}):
    """The model's earlier call of a tool that takes free text."""

    call_id: Tag
    name: Tag
    input: Text
    namespace: Tag | None = None
    id: Tag | None = None
    status: Status | None = None
    caller: Note | None = None
    async_: bool | None = None


class CustomToolCallOutputItem(Typed, kw_only=True, tag="custom_tool_call_output"):
    """The result of such a call."""

    call_id: Tag
    output: Text | Annotated[list[OutputPart], Meta(max_length=MAX_PARTS)]
    name: Tag | None = None
    id: Tag | None = None
    status: Status | None = None
    caller: Note | None = None


class ReasoningItem(Typed, kw_only=True, tag="reasoning"):
    """The model's reasoning before its answer. `encrypted_content` is ours, see `sealed.py`."""

    id: Tag | None = None
    summary: Annotated[list[SummaryText], Meta(max_length=MAX_PARTS)] = []
    content: Annotated[list[ReasoningText], Meta(max_length=MAX_PARTS)] | None = None
    encrypted_content: Text | None = None
    status: Status | None = None


class ItemReference(Typed, tag="item_reference"):
    """An item of a stored response, by its id."""

    id: Tag


Item: TypeAlias = (
    MessageItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | CustomToolCallItem
    | CustomToolCallOutputItem
    | ReasoningItem
    | ItemReference
)


class FunctionTool(Typed, kw_only=True, tag="function"):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: ToolName
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    """Without effect: every tool is in the prompt."""
    output_schema: dict[str, Any] | None = None
    """Without effect."""
    allowed_callers: Annotated[list[Literal["direct"]], Meta(max_length=1)] | None = None


class TextInput(Typed, tag="text"):
    """Any text."""


class GrammarInput(Typed, tag="grammar"):
    """Text by a grammar. The model reads the grammar; its text is not forced into it."""

    definition: Text
    syntax: Literal["lark", "regex"]


class CustomTool(Typed, kw_only=True, tag="custom"):
    """A tool that takes free text."""

    name: ToolName
    description: Text | None = None
    format: TextInput | GrammarInput | None = None
    defer_loading: bool | None = None
    allowed_callers: Annotated[list[Literal["direct"]], Meta(max_length=1)] | None = None


class NamespaceTool(Typed, kw_only=True, tag="namespace"):
    """Tools under a common name. The model sees each as `namespace__name`."""

    name: ToolName
    description: Text | None = None
    tools: Annotated[list[FunctionTool | CustomTool], Meta(min_length=1, max_length=MAX_TOOLS)]


class WebSearchTool(Typed, kw_only=True, tag="web_search"):
    """OpenAI's own search. With `external_web_access` false it may only read OpenAI's index: there is none here, and
    the tool is left out. Otherwise it is refused."""

    external_web_access: bool | None = None
    filters: Note | None = None
    search_context_size: Tag | None = None
    search_content_types: Notes | None = None
    user_location: Note | None = None
    indexed_web_access: bool | None = None


Tool: TypeAlias = FunctionTool | CustomTool | NamespaceTool | WebSearchTool


class NamedToolChoice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Forces one tool."""

    type: Literal["function", "custom"]
    name: Tag
    namespace: Tag | None = None


class SchemaFormat(Typed, kw_only=True, tag="json_schema", rename={"schema_": "schema"}):
    """JSON by schema."""

    name: Tag
    schema_: dict[str, Any]
    description: Text | None = None
    strict: bool | None = None


class ResponseText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The form of the text. `verbosity`: only OpenAI's default is taken, models here know no other."""

    format: TextFormat | JsonObjectFormat | SchemaFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The length of the model's reasoning. `summary` has no effect: a response holds the reasoning itself."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "all_turns"] | None = None


class ResponseStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of streaming."""

    include_obfuscation: Literal[False] | None = None


Include: TypeAlias = Literal[
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
]
"""Only the first has an effect. The others concern tools that cannot be called here, or data that is included."""
ENCRYPTED: Include = "reasoning.encrypted_content"


class ConversationName(msgspec.Struct, forbid_unknown_fields=True):
    """Names a conversation."""

    id: Tag


class NewItems(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/conversations/{conversation_id}/items."""

    items: Annotated[list[Item], Meta(min_length=1, max_length=MAX_NEW_ITEMS)]


class NewConversation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/conversations."""

    items: Annotated[list[Item], Meta(max_length=MAX_NEW_ITEMS)] | None = None
    metadata: Metadata | None = None


class ChangedConversation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/conversations/{conversation_id}. Null removes all metadata."""

    metadata: Metadata | None


class CountedRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that make the prompt: POST /v1/responses/input_tokens."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_NAME)]
    input: Text | Annotated[list[Item], Meta(max_length=MAX_ITEMS)]
    instructions: Text | None = None
    previous_response_id: Tag | None = None
    conversation: Tag | ConversationName | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: ResponseText | None = None
    reasoning: ReasoningConfig | None = None
    truncation: Literal["auto", "disabled"] | None = None
    """`auto` is refused, because it would cut the prompt silently."""
    extra_body: dict[str, msgspec.Raw] | None = None
    """Other parameters of engines, undecoded, as in chat completions."""

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that the request continues."""
        named = self.conversation
        return named.id if isinstance(named, ConversationName) else named


class ResponsesRequest(CountedRequest, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/responses."""

    max_output_tokens: Positive | None = None
    max_tool_calls: Positive | None = None
    """Without effect: it limits OpenAI's own tools."""
    temperature: Temperature | None = None
    top_p: TopP | None = None
    include: Annotated[list[Include], Meta(max_length=16)] | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    """Whether to store the response; `background` stores it too."""
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    background: bool | None = None
    """If true, the worker runs the request, and the client retrieves the response."""
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    user: Tag | None = None
    safety_identifier: Tag | None = None
    prompt_cache_key: Tag | None = None
    client_metadata: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    """Codex's own field. Without effect, and not stored."""


UNSUPPORTED = frozenset(
    {
        "access_programs",
        "background_options",
        "context_management",
        "image",
        "moderation",
        "prompt",
        "prompt_cache_options",
        "prompt_cache_retention",
        "top_logprobs",
    }
)
"""OpenAI's fields that are refused, because ignoring one would change the response or the bill."""
