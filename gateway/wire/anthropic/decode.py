"""Finds errors in Anthropic's requests that its structs do not find."""

from __future__ import annotations

import re

import msgspec

from contracts.errors import InvalidField, RequestError, UnsupportedField
from contracts.misfit import shortened
from gateway.wire.anthropic.schema import AssistantTurn, CountTokensRequest

CUSTOM = "custom"
_IN_A_TOOL = re.compile(r"tools\[(\d+)\]")


class _ToolType(msgspec.Struct):
    type: str | None = None


class _Tools(msgspec.Struct):
    tools: list[_ToolType] = []


_tools = msgspec.json.Decoder(_Tools).decode


def require_turn(request: CountTokensRequest) -> None:
    """Raise a RequestError if the last message is the assistant's, or if `tool_choice` has no tools."""
    if isinstance(request.messages[-1], AssistantTurn):
        raise InvalidField(
            "The last message has the role 'assistant'. Slipstream cannot continue an assistant message. End the "
            "conversation with a user message.",
            param=f"messages[{len(request.messages) - 1}].role",
        )
    if request.tool_choice is not None and not request.tools:
        raise InvalidField(
            "'tool_choice' is set, but there are no 'tools'. Add 'tools', or remove 'tool_choice'.", param="tool_choice"
        )


def by_tool_type(error: RequestError, body: bytes) -> RequestError:
    """The same error, or one about the type of a tool that only Anthropic's service has, whose other fields are
    unknown."""
    found = _IN_A_TOOL.match(error.param or "")
    if found is None:
        return error
    number = int(found.group(1))
    try:
        kind = _tools(body).tools[number].type
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, RecursionError):
        return error
    if kind in (None, CUSTOM):
        return error
    param = f"tools[{number}].type"
    return UnsupportedField(
        f"Unsupported value for '{param}': {shortened(repr(kind))}. Slipstream runs no server tools. Use a "
        f"client tool with type '{CUSTOM}' and an 'input_schema'.",
        param=param,
    )
