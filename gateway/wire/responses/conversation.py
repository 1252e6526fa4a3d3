"""Converts items of the Responses API to messages of a chat.

The model's reasoning, text and calls are separate items; a chat has them in one message. They are joined up to the next
message of another role, or the next result of a call. Images of results begin the user's message after them, because
messages of tools hold only text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from contracts.errors import InvalidField, NotFound
from gateway.wire.image_url import require_image_url
from gateway.wire.openai.schema import (
    MAX_CALLS,
    MAX_MESSAGES,
    AssistantMessage,
    ImagePart,
    ImageUrl,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from gateway.wire.openai.schema import FunctionCall as ChatFunction
from gateway.wire.openai.schema import Message as ChatMessage
from gateway.wire.responses.schema import (
    CustomToolCallItem,
    CustomToolCallOutputItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputImage,
    InputText,
    Item,
    ItemReference,
    MessageItem,
    OutputText,
    Part,
    ReasoningItem,
    Refusal,
)
from gateway.wire.responses.sealed import MAX_CHARACTERS, opened
from gateway.wire.responses.tools import arguments_of, function_name

PartT = TypeVar("PartT", TextPart, TextPart | ImagePart)
_PATH = re.compile(r"messages\[(\d{1,6})\](?:\.tool_calls\[(\d{1,6})\])?(?:\.function\b)?")


class Source(NamedTuple):
    """The origin of a message: the path of its item and the paths of its calls."""

    path: str
    calls: list[str]


class _Turn:
    """The model's message, which later items may extend. Its texts are joined once, because appending to a text copies
    it and there may be thousands."""

    def __init__(self, message: AssistantMessage) -> None:
        self.message = message
        self.texts = [message.content] if isinstance(message.content, str) else []
        self.thoughts = [message.reasoning_content] if message.reasoning_content is not None else []

    def join(self) -> None:
        """Put the joined texts and thoughts into the message."""
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        if len(self.thoughts) > 1:
            self.thoughts = ["".join(self.thoughts)]
        self.message.content = self.texts[0] if self.texts else None
        self.message.reasoning_content = self.thoughts[0] if self.thoughts else None


class Conversation:
    """Messages of a chat, each with its source."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self._sources: list[Source] = []
        self._turn: _Turn | None = None
        self._opened_characters = 0
        """Characters of reasoning from `encrypted_content`."""
        self._images: list[TextPart | ImagePart] = []
        """Images of the results since the last other message."""
        self._images_path = ""

    def instruct(self, text: str) -> None:
        """Add the request's `instructions`."""
        self._add(SystemMessage(text), "instructions")

    def extend(self, items: Iterable[tuple[str, Item]]) -> None:
        """Add items, each with its path in the request. Raises a RequestError that names it, or an empty `input`."""
        for path, item in items:
            if isinstance(item, MessageItem):
                self._message(item, path)
            elif isinstance(item, ReasoningItem):
                self._reason(item, path)
            elif isinstance(item, FunctionCallItem):
                self._call(item.call_id, function_name(item.name, item.namespace), item.arguments, path)
            elif isinstance(item, CustomToolCallItem):
                self._call(item.call_id, function_name(item.name, item.namespace), arguments_of(item.input), path)
            elif isinstance(item, ItemReference):
                raise NotFound(
                    f"'{path}.id' is {item.id!r}, but no stored response has an item with this id. Send the item "
                    "itself.",
                    param=f"{path}.id",
                )
            else:
                self._result(item, path)
        if self._images:
            self._add(UserMessage([]), self._images_path)
        if self._turn is not None:
            self._turn.join()
        if not self.messages:
            raise InvalidField("'input' is empty: send at least one message, or a text.", param="input")
        if len(self.messages) > MAX_MESSAGES:
            raise InvalidField(
                f"The conversation has {len(self.messages)} messages; at most {MAX_MESSAGES} are allowed. Shorten it.",
                param="input",
            )

    def path_of(self, text: str) -> str:
        """The text with items' paths instead of messages' paths."""
        return _PATH.sub(self._path, text)

    def _path(self, found: re.Match[str]) -> str:
        """The item's path instead of a message's. An error may quote a client's text, which may name any path."""
        at, number = int(found[1]), None if found[2] is None else int(found[2])
        if at >= len(self._sources):
            return found[0]
        source = self._sources[at]
        if number is None:
            return source.path
        return source.calls[number] if number < len(source.calls) else found[0]

    def _add(self, message: ChatMessage, path: str) -> None:
        if self._turn is not None:
            self._turn.join()
        if self._images and not isinstance(message, ToolMessage):
            if not isinstance(message, UserMessage):
                self.messages.append(UserMessage(self._images))
                self._sources.append(Source(self._images_path, []))
            else:
                content = [TextPart(message.content)] if isinstance(message.content, str) else message.content
                message.content = self._images + content
            self._images = []
        self.messages.append(message)
        self._sources.append(Source(path, []))
        self._turn = _Turn(message) if isinstance(message, AssistantMessage) else None

    def _message(self, item: MessageItem, path: str) -> None:
        if item.role == "user":
            self._add(UserMessage(_user_content(item.content, f"{path}.content")), path)
        elif item.role == "assistant":
            self._said(_text(item.content, f"{path}.content"), path)
        else:
            self._add(SystemMessage(_instructions(item.content, f"{path}.content")), path)

    def _result(self, item: FunctionCallOutputItem | CustomToolCallOutputItem, path: str) -> None:
        if isinstance(item.output, str):
            self._add(ToolMessage(item.output, item.call_id), path)
            return
        parts = [_user_part(part, f"{path}.output[{number}]") for number, part in enumerate(item.output)]
        images = [part for part in parts if isinstance(part, ImagePart)]
        texts = [part for part in parts if isinstance(part, TextPart)]
        self._add(ToolMessage(_joined(texts) if texts else "", item.call_id), path)
        if images:
            self._images += images
            self._images_path = path

    def _said(self, text: str, path: str) -> None:
        turn = self._turn
        if turn is None or (turn.texts and not turn.message.tool_calls):
            self._add(AssistantMessage(text), path)
        else:
            turn.texts.append(text)

    def _reason(self, item: ReasoningItem, path: str) -> None:
        if item.content is not None:
            text = "".join(part.text for part in item.content)
        elif item.encrypted_content is not None:
            text = self._opened(item.encrypted_content, f"{path}.encrypted_content")
        else:
            return  # a summary is not the model's reasoning
        if not text:
            return
        turn = self._turn
        if turn is None or turn.texts or turn.message.tool_calls:
            self._add(AssistantMessage(reasoning_content=text), path)
        else:
            turn.thoughts.append(text)

    def _opened(self, content: str, param: str) -> str:
        text = opened(content, param)
        self._opened_characters += len(text)
        if self._opened_characters > MAX_CHARACTERS:
            raise InvalidField(
                f"The reasoning up to '{param}' has more than {MAX_CHARACTERS} characters, the limit of one "
                "request. Omit the reasoning of earlier turns.",
                param=param,
            )
        return text

    def _call(self, call_id: str, name: str, arguments: str, path: str) -> None:
        if self._turn is None:
            self._add(AssistantMessage(), path)
        assert self._turn is not None
        turn = self._turn.message
        calls = turn.tool_calls = turn.tool_calls or []
        if len(calls) == MAX_CALLS:
            raise InvalidField(
                f"'{path}' is a tool call after {MAX_CALLS} consecutive ones, which is the limit. Put a message or the "
                "calls' outputs between them.",
                param=path,
            )
        calls.append(ToolCall(call_id, ChatFunction(name, arguments)))
        self._sources[-1].calls.append(path)


def _parts(content: list[Part], path: str) -> Iterable[tuple[str, Part]]:
    return ((f"{path}[{number}]", part) for number, part in enumerate(content))


def _instructions(content: str | list[Part], path: str) -> str | list[TextPart]:
    if isinstance(content, str):
        return content
    return _joined([TextPart(_plain(part, where)) for where, part in _parts(content, path)])


def _user_content(content: str | list[Part], path: str) -> str | list[TextPart | ImagePart]:
    if isinstance(content, str):
        return content
    return _joined([_user_part(part, where) for where, part in _parts(content, path)])


def _joined(parts: list[PartT]) -> str | list[PartT]:
    """A single text as a string, because templates treat parts differently."""
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts


def _user_part(part: Part, path: str) -> TextPart | ImagePart:
    if not isinstance(part, InputImage):
        return TextPart(_plain(part, path))
    return ImagePart(ImageUrl(require_image_url(part.image_url, f"{path}.image_url"), part.detail))


def _plain(part: Part, path: str) -> str:
    if isinstance(part, InputText | OutputText):
        return part.text
    kind = "refusal" if isinstance(part, Refusal) else "input_image"
    raise InvalidField(
        f"Invalid value for '{path}.type': {kind!r} is not allowed here; send text.", param=f"{path}.type"
    )


def _text(content: str | list[Part], path: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(
        part.refusal if isinstance(part, Refusal) else _plain(part, where) for where, part in _parts(content, path)
    )
