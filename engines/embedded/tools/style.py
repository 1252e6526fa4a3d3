"""A model family's format of tool calls: recognised by its chat template, read by a parser, enforced by a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from engines.embedded.grammar.spec import JSON_OPTIONS
from engines.embedded.tools.calls import CallParser
from engines.embedded.tools.hermes import HermesParser
from engines.embedded.tools.llama3 import Llama3Parser
from engines.embedded.tools.mistral import MistralParser

JsonObject = dict[str, Any]
LITERALS = frozenset({"const", "default", "enum", "examples"})
"""Keywords of JSON Schema that hold values."""


class CallStyle(msgspec.Struct, frozen=True):
    """One family's format of tool calls."""

    arguments_key: str
    parser: Callable[[frozenset[str]], CallParser]
    """Makes a parser for one choice from the tools' names."""
    call: str
    """One call in Lark; `object` is its JSON."""
    between: str
    """Separator of two calls, in Lark."""
    free: str
    """In Lark: any response whose calls are `call`s, separated by `between`. `{more}` stands for further calls."""
    forced: str = "start: call{more}\n"
    """The same for a response of calls only."""
    after_name: str | None = None
    """In Lark: the text between a call's name and its arguments, where the name is not part of the JSON."""


HERMES = CallStyle(
    arguments_key="arguments",
    parser=HermesParser,
    call=r'"<tool_call>\n" object "\n</tool_call>"',
    between=r'"\n"',
    # the first tag ends the text that precedes it; a lexer that read on would not see the call
    free=r"""start: TEXT | first{more}
first: before "\n" object "\n</tool_call>"
before[lazy]: /(.|\n)*<tool_call>/
TEXT: /(.|\n)*/ & ~/(.|\n)*<tool_call>(.|\n)*/
""",
)
LLAMA3 = CallStyle(
    arguments_key="parameters",
    parser=Llama3Parser,
    call="object",
    between='"; "',
    free=r"""start: TEXT | call{more}
TEXT: /[^{ \n\r\t](.|\n)*/
""",
)
# some templates have the blank after the marker and others do not
MISTRAL = CallStyle(
    arguments_key="arguments",
    parser=MistralParser,
    call="object",
    between='", "',
    free=r"""start: TEXT | before " "? "[" call{more} "]"
before[lazy]: /(.|\n)*\[TOOL_CALLS\]/
TEXT: /(.|\n)*/ & ~/(.|\n)*\[TOOL_CALLS\](.|\n)*/
""",
    forced='start: "[TOOL_CALLS]" " "? "[" call{more} "]"\n',
)
MISTRAL_NAMED = CallStyle(
    arguments_key="arguments",
    parser=MistralParser,
    call='"[TOOL_CALLS]" object',
    between="",
    free=r"""start: TEXT | before object{more}
before[lazy]: /(.|\n)*\[TOOL_CALLS\]/
TEXT: /(.|\n)*/ & ~/(.|\n)*\[TOOL_CALLS\](.|\n)*/
""",
    after_name='"[ARGS]"',
)
MISTRAL_NUMBERED = msgspec.structs.replace(MISTRAL_NAMED, after_name='"[CALL_ID]" /[a-zA-Z0-9]{9}/ "[ARGS]"')


def style_of(template: str | None) -> CallStyle | None:
    """The style that a chat template shows, or None when it takes no tools or has an unknown style."""
    if template is None or not re.search(r"\btools\b", template):
        return None
    if "<tool_call>" in template:
        return HERMES
    if "python_tag" in template or ("ipython" in template and '"parameters"' in template):
        return LLAMA3
    if "[TOOL_CALLS]" in template:
        return MISTRAL_NUMBERED if "[CALL_ID]" in template else MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    return None


def call_grammar(style: CallStyle, functions: list[JsonObject], *, may_talk: bool, several: bool) -> str:
    """Lark for a response that calls these functions. may_talk: text alone is allowed too. several: more than one
    call."""
    more = f" ({style.between} call)*" if several else ""
    start = (style.free if may_talk else style.forced).replace("{more}", more)
    return f"%llguidance {{}}\n{start}call: {style.call}\n{_objects(style, functions, may_talk=may_talk)}"


def _objects(style: CallStyle, functions: list[JsonObject], *, may_talk: bool) -> str:
    """The definition of `object`: the JSON of one call."""
    if style.after_name is None:
        alone = len(functions) == 1
        schemas = [
            _call_schema(style, function, "#" if alone else f"#/anyOf/{at}", may_talk=may_talk)
            for at, function in enumerate(functions)
        ]
        return f"object: {_json(schemas[0] if alone else {'anyOf': schemas})}\n"
    rules = [f"object: {' | '.join(f'object{at}' for at in range(len(functions)))}\n"]
    for at, function in enumerate(functions):
        schema = _json(_parameters(function, may_talk=may_talk))
        rules.append(f"object{at}: {json.dumps(function['name'])} {style.after_name} arguments{at}\n")
        rules.append(f"arguments{at}: {schema}\n")
    return "".join(rules)


def _json(schema: JsonObject) -> str:
    return f"%json {json.dumps({'x-guidance': JSON_OPTIONS, **schema})}"


def _parameters(function: JsonObject, *, may_talk: bool) -> JsonObject:
    # a model that chose to call freely follows the schema only where the client was strict about it
    bound = not may_talk or function.get("strict")
    if not bound:
        return {"type": "object"}
    parameters: JsonObject | None = function.get("parameters")
    # OpenAI: omitted parameters define a function with an empty parameter list
    return parameters if parameters else {"type": "object", "properties": {}, "additionalProperties": False}


def _call_schema(style: CallStyle, function: JsonObject, at: str, *, may_talk: bool) -> JsonObject:
    """at: the JSON pointer of the call's schema in the whole one."""
    parameters = _parameters(function, may_talk=may_talk)
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            style.arguments_key: _rerooted(parameters, f"{at}/properties/{style.arguments_key}"),
        },
        "required": ["name", style.arguments_key],
        "additionalProperties": False,
    }


def _rerooted(schema: Any, root: str) -> Any:
    """The schema with references to itself moved to its position in a larger one. Values that a schema compares with,
    such as those of `enum`, are no schemas and stay."""
    if isinstance(schema, list):
        return [_rerooted(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: value if name in LITERALS else _rerooted(value, root) for name, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved
