"""How a model family writes tool calls: told by its chat template, read by a parser, forced by a grammar."""

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

JsonObject = dict[str, Any]


class CallStyle(msgspec.Struct, frozen=True):
    """One family's way of calling tools."""

    arguments_key: str
    parser: Callable[[frozenset[str]], CallParser]
    """Makes a parser for one choice from the tools' names."""
    call: str
    """One call in Lark; `object` is its JSON."""
    between: str
    """What separates two calls, in Lark."""
    free: str
    """In Lark: any answer whose calls are `call`s, separated by `between`. `{more}` stands for further calls."""


HERMES = CallStyle(
    arguments_key="arguments",
    parser=HermesParser,
    call=r'"<tool_call>\n" object "\n</tool_call>"',
    between=r'"\n"',
    # the first tag ends the text that precedes it; a lexer that went on reading would not see the call
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


def style_of(template: str | None) -> CallStyle | None:
    """The style that a chat template shows, or None when it takes no tools or none that is known here."""
    if template is None or not re.search(r"\btools\b", template):
        return None
    if "<tool_call>" in template:
        return HERMES
    if "python_tag" in template or ("ipython" in template and '"parameters"' in template):
        return LLAMA3
    return None


def call_grammar(style: CallStyle, functions: list[JsonObject], *, may_talk: bool, several: bool) -> str:
    """Lark for an answer that calls these functions. may_talk: text alone will do too. several: more than one call."""
    schemas = [_call_schema(style, function, may_talk=may_talk) for function in functions]
    schema = {"x-guidance": JSON_OPTIONS, **(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})}
    more = f" ({style.between} call)*" if several else ""
    start = style.free.replace("{more}", more) if may_talk else f"start: call{more}\n"
    return f"%llguidance {{}}\n{start}call: {style.call}\nobject: %json {json.dumps(schema)}\n"


def _call_schema(style: CallStyle, function: JsonObject, *, may_talk: bool) -> JsonObject:
    # a model that chose to call freely is held to the schema only where the client was strict about it
    bound = not may_talk or function.get("strict")
    parameters = function.get("parameters") if bound else None
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            style.arguments_key: parameters if parameters else {"type": "object"},
        },
        "required": ["name", style.arguments_key],
        "additionalProperties": False,
    }
