"""Turns a request of the Responses API into a chat request, and prepares it like one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from contracts.errors import RequestError
from contracts.generation import Caller
from gateway.wire.openai import schema as chat
from gateway.wire.openai.prepare import prepare_chat
from gateway.wire.prepared import Prepared, Target
from gateway.wire.responses.conversation import Conversation
from gateway.wire.responses.schema import (
    CountedRequest,
    Item,
    MessageItem,
    NamedToolChoice,
    ResponsesRequest,
    SchemaFormat,
)
from gateway.wire.responses.tools import ToolNames, chat_tools, function_name

_FIELDS = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "prompt": "input",
    "messages": "input",
}
"""This API's names of a chat request's fields."""
_NAMES = re.compile(r"\b(?:max_completion_tokens|max_tokens|response_format|reasoning_effort)\b")


class Asked(msgspec.Struct, frozen=True):
    """A decoded request, with the items before its own."""

    request: ResponsesRequest
    history: tuple[Item, ...] = ()
    """Items of the responses before it, oldest first."""
    items: tuple[Item, ...] = ()
    """The request's own items."""

    @property
    def model(self) -> str:
        return self.request.model

    @property
    def continued(self) -> str:
        """The field that names the history."""
        return "previous_response_id" if self.request.conversation is None else "conversation"


class Details(msgspec.Struct, frozen=True):
    """Data for the response."""

    asked: Asked
    names: ToolNames


def items_of(request: CountedRequest) -> tuple[Item, ...]:
    return (
        (MessageItem(role="user", content=request.input),) if isinstance(request.input, str) else tuple(request.input)
    )


async def prepare_response(
    asked: Asked,
    request_id: str,
    caller: Caller,
    salt: str,
    target: Target,
    require_arguments: Callable[[chat.ChatRequest], None],
) -> Prepared:
    """Raises a RequestError that has this API's name of the field. require_arguments: see `Decoder`."""
    conversation = Conversation()
    if asked.request.instructions:
        conversation.instruct(asked.request.instructions)
    path = "input" if isinstance(asked.request.input, str) else "input[{}]"
    own = ((path.format(at), item) for at, item in enumerate(asked.items))
    conversation.extend(itertools.chain(((asked.continued, item) for item in asked.history), own))
    tools, names = chat_tools(asked.request.tools or ())
    request = _chat_request(asked.request, conversation.messages, tools)
    try:
        require_arguments(request)
        prepared = await prepare_chat(request, request_id, caller, salt, target)
    except RequestError as error:
        error.message = _NAMES.sub(lambda found: _FIELDS[found[0]], conversation.path_of(error.message))
        if error.param is not None:
            error.param = _FIELDS.get(error.param) or conversation.path_of(error.param)
        raise
    return replace(prepared, details=Details(asked, names))


def _chat_request(request: ResponsesRequest, messages: list[chat.Message], tools: list[chat.Tool]) -> chat.ChatRequest:
    choice = request.tool_choice
    if not tools and choice in ("auto", "none"):
        choice = None  # its tools were left out, and engines refuse a choice without tools
    return chat.ChatRequest(
        model=request.model,
        messages=messages,
        max_completion_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        tools=tools or None,
        tool_choice=_choice(choice) if isinstance(choice, NamedToolChoice) else choice,
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_response_format(request),
        reasoning_effort=None if request.reasoning is None else request.reasoning.effort,
        extra_body=request.extra_body,
        stream=request.stream,
        user=request.user or request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
        service_tier=request.service_tier,
    )


def _choice(choice: NamedToolChoice) -> chat.NamedTool:
    return chat.NamedTool("function", chat.NamedFunction(function_name(choice.name, choice.namespace)))


def _response_format(request: CountedRequest) -> Any:
    chosen = None if request.text is None else request.text.format
    if isinstance(chosen, chat.JsonObjectFormat):
        return chosen
    if isinstance(chosen, SchemaFormat):
        return chat.JsonSchemaFormat(chat.JsonSchema(chosen.name, chosen.schema_, chosen.description, chosen.strict))
    return None
