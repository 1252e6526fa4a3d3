"""Converts an Anthropic request to the chat request that the rest of the gateway knows. Pure.

Its prompt, count, limits, prefix and ledger are then those of a chat completion with the same conversation:

    Anthropic                                   chat
    system, and blocks of text                  one message; texts are joined by an empty line
    turns of one role in a row                  one message, as Anthropic combines them
    tool_result                                 a message of the role `tool`, before the rest of its turns
    images of a tool_result                     parts of the user's message after it: tools' messages hold text only
    is_error                                    `Error: ` before the text, unless the text itself mentions an error
    thinking                                    `reasoning_content`
    role system within messages                 stays in its position, or is text of the user if the template refuses it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from contracts.engine_parameters import NOT_THINKING
from contracts.errors import UnsupportedField
from engines.drivers.parameters import CHAT_TEMPLATE_KWARGS
from gateway.wire.anthropic import schema
from gateway.wire.openai.schema import (
    AssistantMessage,
    ChatRequest,
    FunctionCall,
    FunctionDefinition,
    ImagePart,
    ImageUrl,
    JsonSchema,
    JsonSchemaFormat,
    Message,
    NamedFunction,
    NamedTool,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from gateway.wire.openai.system_messages import BETWEEN
from gateway.wire.prepared import Target

CLIENTS_OWN = "x-anthropic-billing-header:"
"""Beginning of a system block that Claude Code writes for Anthropic's accounting. The block is left out: it differs
between versions and ways to start the client, so that otherwise equal prompts would share no prefix."""
ERROR = "Error: "
_ERROR_WITHIN = 64
"""Characters of a result that are searched for the word `error`."""
FORMAT_NAME = "output"
Parts = list[TextPart | ImagePart]


class Converted(msgspec.Struct):
    """The chat request, and the path of each of its messages in the client's body."""

    request: ChatRequest
    paths: list[str]


def converted(asked: schema.CountTokensRequest, target: Target) -> Converted:
    """Convert a request. Raises UnsupportedField for an image that is given by its URL."""
    conversation = _Conversation(later_system=_takes_later_system(target))
    conversation.system(asked.system)
    for index, turn in enumerate(asked.messages):
        conversation.add(turn, f"messages[{index}]")
    choice = asked.tool_choice
    request = ChatRequest(
        model=asked.model,
        messages=conversation.messages(),
        tools=[_tool(tool) for tool in asked.tools] if asked.tools else None,
        tool_choice=_tool_choice(choice),
        parallel_tool_calls=False if getattr(choice, "disable_parallel_tool_use", None) else None,
        response_format=_response_format(asked.output_config),
        extra_body=_engine_parameters(asked, target) or None,
    )
    if isinstance(asked, schema.MessagesRequest):
        request.max_tokens = asked.max_tokens
        request.stream = asked.stream
        request.temperature = asked.temperature
        request.top_p = asked.top_p
        request.stop = asked.stop_sequences
        request.user = asked.metadata.user_id if asked.metadata is not None else None
        request.service_tier = "default" if asked.service_tier == "standard_only" else None
    return Converted(request, conversation.paths)


class _Said(msgspec.Struct):
    """Consecutive turns of the assistant, joined once: appending to a text copies it, and there may be thousands."""

    message: AssistantMessage
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []

    def join(self) -> None:
        """Put the joined texts, thoughts and calls into the message."""
        text = BETWEEN.join(filter(None, self.texts))
        self.message.content = None if self.calls and not text else text
        self.message.tool_calls = self.calls or None
        self.message.reasoning_content = "".join(self.thoughts) or None


class _Conversation:
    """Chat messages of the turns so far."""

    def __init__(self, *, later_system: bool) -> None:
        self._later_system = later_system
        self._messages: list[Message] = []
        self._assistant_turns: list[_Said] = []
        self.paths: list[str] = []

    def system(self, content: str | list[schema.TextBlock] | None) -> None:
        """The instructions at the top of the body."""
        blocks = [content] if isinstance(content, str) else [block.text for block in content or ()]
        if text := BETWEEN.join(block for block in blocks if block and not block.startswith(CLIENTS_OWN)):
            self._append(SystemMessage(text), "system")

    def add(self, turn: schema.Turn, path: str) -> None:
        if isinstance(turn, schema.AssistantTurn):
            self._assistant(turn, path)
        elif isinstance(turn, schema.UserTurn):
            self._user(turn, path)
        else:
            content = turn.content
            text = content if isinstance(content, str) else BETWEEN.join(block.text for block in content)
            if self._later_system or not self._messages:
                self._append(SystemMessage(text), path)
            else:
                self._add_user([TextPart(text)], path)

    def messages(self) -> list[Message]:
        """All messages. A user message without images becomes one text: many models' templates know no parts."""
        for turns in self._assistant_turns:
            turns.join()
        for message in self._messages:
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                message.content = _text_of(message.content)
        return self._messages

    def _user(self, turn: schema.UserTurn, path: str) -> None:
        content = turn.content
        blocks = [schema.TextBlock(content)] if isinstance(content, str) else content
        rest: Parts = []
        results = False
        for number, block in enumerate(blocks):
            where = f"{path}.content[{number}]"
            if isinstance(block, schema.ToolResultBlock):
                results = True
                self._result(ToolMessage(_result_text(block), block.tool_use_id), where)
                rest += [
                    _image(part, f"{where}.content[{index}]")
                    for index, part in enumerate(block.content if isinstance(block.content, list) else ())
                    if isinstance(part, schema.ImageBlock)
                ]
            elif isinstance(block, schema.ImageBlock):
                rest.append(_image(block, where))
            else:
                rest.append(TextPart(block.text))
        if rest or not results:
            self._add_user(rest, path)

    def _result(self, message: ToolMessage, path: str) -> None:
        """Add a result before the turns' user message, because engines' templates require consecutive results."""
        at = len(self._messages) - isinstance(self._messages[-1] if self._messages else None, UserMessage)
        self._messages.insert(at, message)
        self.paths.insert(at, path)

    def _add_user(self, parts: Parts, path: str) -> None:
        last = self._messages[-1] if self._messages else None
        if isinstance(last, UserMessage) and isinstance(last.content, list):
            last.content += parts
        else:
            self._append(UserMessage(parts), path)

    def _assistant(self, turn: schema.AssistantTurn, path: str) -> None:
        content = turn.content
        blocks = [schema.TextBlock(content)] if isinstance(content, str) else content
        last = self._messages[-1] if self._messages else None
        if not isinstance(last, AssistantMessage):
            last = AssistantMessage(None)
            self._assistant_turns.append(_Said(last))
            self._append(last, path)
        turns = self._assistant_turns[-1]
        turns.texts.append(BETWEEN.join(block.text for block in blocks if isinstance(block, schema.TextBlock)))
        turns.thoughts += [block.thinking for block in blocks if isinstance(block, schema.ThinkingBlock)]
        turns.calls += [
            ToolCall(block.id, FunctionCall(block.name, msgspec.json.encode(block.input).decode()))
            for block in blocks
            if isinstance(block, schema.ToolUseBlock)
        ]

    def _append(self, message: Message, path: str) -> None:
        self._messages.append(message)
        self.paths.append(path)


def _takes_later_system(target: Target) -> bool:
    """Whether a system message may follow other messages; without a tokenizer, the engine decides."""
    return target.tokenizer is None or target.tokenizer.tokenizer.takes_later_system


def _text_of(parts: Sequence[TextPart | ImagePart]) -> str | list[TextPart | ImagePart]:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return BETWEEN.join(texts) if len(texts) == len(parts) else list(parts)


def _result_text(block: schema.ToolResultBlock) -> str:
    content = block.content
    if content is None:
        text = ""
    elif isinstance(content, str):
        text = content
    else:
        text = BETWEEN.join(part.text for part in content if isinstance(part, schema.TextBlock))
    return ERROR + text if block.is_error and "error" not in text[:_ERROR_WITHIN].lower() else text


def _image(block: schema.ImageBlock, path: str) -> ImagePart:
    source = block.source
    if isinstance(source, schema.UrlSource):
        raise UnsupportedField(
            f"'{path}.source' is a URL. Slipstream does not download images. Send the image as base64.",
            param=f"{path}.source",
        )
    return ImagePart(ImageUrl(f"data:{source.media_type};base64,{source.data}"))


def _tool(tool: schema.Tool) -> Tool:
    return Tool("function", FunctionDefinition(tool.name, tool.description, tool.input_schema, tool.strict))


def _tool_choice(choice: schema.ToolChoice | None) -> Literal["none", "auto", "required"] | NamedTool | None:
    match choice:
        case schema.AutoChoice():
            return "auto"
        case schema.AnyChoice():
            return "required"
        case schema.NamedChoice():
            return NamedTool("function", NamedFunction(choice.name))
        case schema.NoChoice():
            return "none"
        case None:
            return None


def _response_format(config: schema.OutputConfig | None) -> JsonSchemaFormat | None:
    if config is None or config.format is None:
        return None
    return JsonSchemaFormat(JsonSchema(FORMAT_NAME, config.format.of))


def _engine_parameters(asked: schema.CountTokensRequest, target: Target) -> dict[str, msgspec.Raw]:
    """Engine parameters that correspond to Anthropic's fields."""
    parameters: dict[str, msgspec.Raw] = {}
    if isinstance(asked, schema.MessagesRequest) and asked.top_k:
        parameters["top_k"] = msgspec.Raw(b"%d" % asked.top_k)
    chosen = isinstance(asked.thinking, schema.ThinkingOn | schema.ThinkingOff)
    if chosen and CHAT_TEMPLATE_KWARGS in target.capabilities.parameters:
        variables = dict.fromkeys(NOT_THINKING, isinstance(asked.thinking, schema.ThinkingOn))
        parameters[CHAT_TEMPLATE_KWARGS] = msgspec.Raw(msgspec.json.encode(variables))
    return parameters
