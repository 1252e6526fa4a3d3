"""The tool settings of a chat request: `tools`, `tool_choice` and `parallel_tool_calls`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contracts.errors import InvalidField, UnsupportedField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.spec import GrammarSpec, lark_spec, require_depth
from engines.embedded.tools.calls import CallParser
from engines.embedded.tools.style import CallStyle, call_grammar

JsonObject = dict[str, Any]
MAX_TOOLS = 128


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function in OpenAI's form."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool, of which functions are the only kind."""

    type: Literal["function"]
    function: Function


class _Name(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class NamedChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A choice of exactly one tool."""

    type: Literal["function"]
    function: _Name


class ToolUse(msgspec.Struct, frozen=True):
    """Tools that a response may call."""

    style: CallStyle
    tools: tuple[JsonObject, ...]
    """The tools in the chat template's form."""
    names: frozenset[str]
    grammar: GrammarSpec | None
    """Constrains the response; None if the response is free."""

    def parser(self) -> CallParser:
        """A parser for one choice."""
        return self.style.parser(self.names)


def read_tools(
    tools: list[Tool] | None,
    choice: str | NamedChoice | None,
    parallel: bool | None,
    style: CallStyle | None,
    config: GrammarConfig,
) -> ToolUse | None:
    """The tools of a request, None if none may be called. style: the model's call style, None if it has none.

    Raises InvalidField or UnsupportedField that names the field.
    """
    if not tools:
        if choice not in (None, "none", "auto"):
            raise InvalidField("tool_choice: there are no tools to choose from; give tools too.", param="tool_choice")
        return None
    if style is None:
        raise UnsupportedField(
            "tools: this model's chat template has no tool call format that this engine supports. Omit `tools`, "
            "or use a model that was made for them.",
            param="tools",
        )
    functions = _functions(tools, config)
    if choice == "none":
        return None
    callable_functions = functions
    if isinstance(choice, NamedChoice):
        callable_functions = [function for function in functions if function["name"] == choice.function.name]
        if not callable_functions:
            raise InvalidField(f"tool_choice: no tool is named {choice.function.name!r}.", param="tool_choice")
    free = choice in (None, "auto")
    several = parallel is not False and not isinstance(choice, NamedChoice)
    grammar = None
    if not free or not several or any(function.get("strict") for function in callable_functions):
        grammar = lark_spec(call_grammar(style, callable_functions, may_talk=free, several=several), "tools")
    rendered = tuple({"type": "function", "function": _shown(function)} for function in functions)
    return ToolUse(style, rendered, frozenset(function["name"] for function in callable_functions), grammar)


def _functions(tools: list[Tool], config: GrammarConfig) -> list[JsonObject]:
    if len(tools) > MAX_TOOLS:
        raise InvalidField(f"tools: {len(tools)} tools; at most {MAX_TOOLS}.", param="tools")
    functions: list[JsonObject] = [
        {name: value for name, value in msgspec.to_builtins(tool.function).items() if value is not None}
        for tool in tools
    ]
    if len({function["name"] for function in functions}) < len(functions):
        raise InvalidField("tools: two tools have the same name.", param="tools")
    size = len(msgspec.json.encode([function.get("parameters") for function in functions]))
    if size > config.max_schema_bytes:
        raise InvalidField(
            f"tools: {size} bytes of parameters; this engine takes at most {config.max_schema_bytes}.", param="tools"
        )
    require_depth([function.get("parameters") for function in functions], config.max_schema_depth, "tools")
    return functions


def _shown(function: JsonObject) -> JsonObject:
    """The function without `strict`, which is for the engine; models were not trained with it in templates."""
    return {name: value for name, value in function.items() if name != "strict"}
