"""Model families' formats of tool calls, each with its chat template's marks, a parser and a grammar."""

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
"""Keywords of JSON Schema whose content is a value and not a schema."""


class CallStyle(msgspec.Struct, frozen=True):
    """One family's format of tool calls."""

    arguments_key: str
    parser: Callable[[frozenset[str]], CallParser]
    """Creates a parser for one choice from the names of the tools."""
    call: str
    """One call, in Lark; `object` is its JSON."""
    between: str
    """Separator of two calls, in Lark."""
    free: str
    """Any response whose calls are `call`s, separated by `between`, in Lark; `{more}` marks further calls."""
    forced: str = "start: call{more}\n"
    """A response of calls only, in Lark."""
    after_name: str | None = None
    """The text between a call's name and its arguments, in Lark; None if the name is part of the JSON."""


HERMES = CallStyle(
    arguments_key="arguments",
    parser=HermesParser,
    call=r'"<tool_call>\n" object "\n</tool_call>"',
    between=r'"\n"',
    # the first tag ends the text before it, because a greedy lexer would not see the call
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
# only some templates have the blank after the marker
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
    """The style of a chat template, or None if it takes no tools or has an unknown style."""
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
    """A Lark grammar for responses that call these functions. may_talk: text alone is allowed too. several: more
    than one call is allowed."""
    more = f" ({style.between} call)*" if several else ""
    start = (style.free if may_talk else style.forced).replace("{more}", more)
    return f"%llguidance {{}}\n{start}call: {style.call}\n{_objects(style, functions, may_talk=may_talk)}"


def _objects(style: CallStyle, functions: list[JsonObject], *, may_talk: bool) -> str:
    """The definition of `object`, the JSON of one call."""
    if style.after_name is None:
        single = len(functions) == 1
        schemas = [
            _call_schema(style, function, "#" if single else f"#/anyOf/{at}", may_talk=may_talk)
            for at, function in enumerate(functions)
        ]
        return f"object: {_json(schemas[0] if single else {'anyOf': schemas})}\n"
    rules = [f"object: {' | '.join(f'object{at}' for at in range(len(functions)))}\n"]
    for at, function in enumerate(functions):
        schema = _json(_parameters(function, may_talk=may_talk))
        rules.append(f"object{at}: {json.dumps(function['name'])} {style.after_name} arguments{at}\n")
        rules.append(f"arguments{at}: {schema}\n")
    return "".join(rules)


def _json(schema: JsonObject) -> str:
    return f"%json {json.dumps({'x-guidance': JSON_OPTIONS, **schema})}"


def _parameters(function: JsonObject, *, may_talk: bool) -> JsonObject:
    # if the model may choose to call, the schema is enforced only if the client set `strict`
    bound = not may_talk or function.get("strict")
    if not bound:
        return {"type": "object"}
    parameters: JsonObject | None = function.get("parameters")
    # in OpenAI's API, omitted parameters define a function with an empty parameter list
    return parameters if parameters else {"type": "object", "properties": {}, "additionalProperties": False}


def _call_schema(style: CallStyle, function: JsonObject, at: str, *, may_talk: bool) -> JsonObject:
    """The schema of one call. at: its JSON pointer in the whole schema."""
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
    """The schema with its references adapted to its position in a larger schema. Values in a schema, such as those of
    `enum`, are not schemas and do not change."""
    if isinstance(schema, list):
        return [_rerooted(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: value if name in LITERALS else _rerooted(value, root) for name, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved
