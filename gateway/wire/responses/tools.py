"""Converts tools of the Responses API to functions of a chat, and a model's calls of functions to that API's calls.

Engines only know functions. A custom tool becomes a function with a single text, `input`; a namespace's tools become
functions named `namespace__name`. `ToolNames` reverses both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.openai.schema import FunctionDefinition
from gateway.wire.openai.schema import Tool as ChatTool
from gateway.wire.responses.schema import MAX_TOOLS, CustomTool, FunctionTool, GrammarInput, NamespaceTool, Tool

BETWEEN = "__"
MAX_NAME = 64
INPUT = "input"
"""The only argument of a custom tool's function."""


class Named(NamedTuple):
    """A tool as its client knows it."""

    name: str
    namespace: str | None = None
    custom: bool = False


class ToolNames:
    """The client's tools by the names of their functions."""

    def __init__(self, named: dict[str, Named]) -> None:
        self._named = named

    def of(self, function: str) -> Named:
        """The tool of a function that the model called. A name that the client did not define stays unchanged."""
        return self._named.get(function) or Named(function)


def function_name(name: str, namespace: str | None) -> str:
    return name if namespace is None else f"{namespace}{BETWEEN}{name}"


def chat_tools(tools: Sequence[Tool]) -> tuple[list[ChatTool], ToolNames]:
    """The functions, in the client's order. Raises a RequestError that names the tool."""
    functions: list[ChatTool] = []
    named: dict[str, Named] = {}
    for at, tool in enumerate(tools):
        inner: list[tuple[str, FunctionTool | CustomTool, str | None]]
        if isinstance(tool, NamespaceTool):
            inner = [(f"tools[{at}].tools[{number}]", one, tool.name) for number, one in enumerate(tool.tools)]
        elif isinstance(tool, FunctionTool | CustomTool):
            inner = [(f"tools[{at}]", tool, None)]
        elif tool.external_web_access is False:
            continue
        else:
            raise UnsupportedField(
                f"'tools[{at}]' is a web search, which Slipstream does not support. Remove it, or set "
                "'external_web_access' to false so that Slipstream ignores it (in Codex: web_search = \"disabled\").",
                param=f"tools[{at}].type",
            )
        for path, one, namespace in inner:
            name = function_name(one.name, namespace)
            if len(name) > MAX_NAME:
                raise InvalidField(
                    f"'{path}.name' and its namespace are {len(name)} characters as {name!r}; at most {MAX_NAME} are "
                    "allowed. Shorten one of them.",
                    param=f"{path}.name",
                )
            if name in named:
                raise InvalidField(
                    f"'{path}.name' is {one.name!r}, but another tool has this name. Rename one of them.",
                    param=f"{path}.name",
                )
            named[name] = Named(one.name, namespace, isinstance(one, CustomTool))
            functions.append(ChatTool("function", _function(one, name)))
    if len(functions) > MAX_TOOLS:
        raise InvalidField(
            f"'tools' has {len(functions)} functions; at most {MAX_TOOLS} are allowed. Remove some.", param="tools"
        )
    return functions, ToolNames(named)


def _function(tool: FunctionTool | CustomTool, name: str) -> FunctionDefinition:
    if isinstance(tool, FunctionTool):
        return FunctionDefinition(name, tool.description, tool.parameters, tool.strict)
    description = tool.description or ""
    if isinstance(tool.format, GrammarInput):
        description += f"\n\n'{INPUT}' follows this {tool.format.syntax} grammar:\n{tool.format.definition}"
    parameters = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole text for the tool."}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return FunctionDefinition(name, description.strip() or None, parameters)


class _Input(msgspec.Struct):
    input: str


_decode_input = msgspec.json.Decoder(_Input).decode


def input_of(arguments: str) -> str:
    """The text for a custom tool. Other arguments (cut, or a model's mistake) are the text itself."""
    try:
        return _decode_input(arguments).input
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments


def arguments_of(text: str) -> str:
    """The arguments of a custom tool's function, for the text of a call."""
    return msgspec.json.encode({INPUT: text}).decode()
