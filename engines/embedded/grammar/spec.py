"""Turns the output format that a request demands into a grammar for llguidance, and checks its size."""

from __future__ import annotations

from typing import Any

import msgspec
from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from contracts.errors import InvalidField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.plain import is_plain

JsonObject = dict[str, Any]
WHITESPACE = r"( |\n {0,16}|\n\t{0,8})?"
"""Whitespace between JSON's tokens: none, a space, or a new line with its indentation. Without a limit, a small model
may write spaces until its tokens run out."""
JSON_OPTIONS: Any = {"whitespace_pattern": WHITESPACE}


class GrammarSpec(msgspec.Struct, frozen=True):
    """One grammar. Equal grammars are compiled once."""

    text: str
    """Grammar in llguidance's own form."""
    field: str
    """The field of the request, for errors."""
    plain: bool = False
    """Whether the grammar is known to compile within milliseconds."""


def schema_spec(schema: JsonObject | bool, field: str, config: GrammarConfig) -> GrammarSpec:
    """JSON that follows a schema. Raises InvalidField if the schema is larger or deeper than the settings allow."""
    encoded = msgspec.json.encode(schema)
    _require_size(encoded, config.max_schema_bytes, field)
    require_depth(schema, config.max_schema_depth, field)
    grammar = LLMatcher.grammar_from_json_schema(encoded.decode(), overrides=JSON_OPTIONS)
    return GrammarSpec(grammar, field, plain=is_plain(schema, len(encoded)))


def object_spec(field: str) -> GrammarSpec:
    """Any JSON object."""
    return GrammarSpec(
        LLMatcher.grammar_from_json_schema({"type": "object"}, overrides=JSON_OPTIONS), field, plain=True
    )


def regex_spec(regex: str, field: str, config: GrammarConfig) -> GrammarSpec:
    """Text that a regular expression matches as a whole. Raises InvalidField if the expression is too large."""
    _require_size(regex.encode(), config.max_regex_bytes, field)
    return GrammarSpec(LLMatcher.grammar_from_regex(regex), field)


def ebnf_spec(ebnf: str, field: str, config: GrammarConfig) -> GrammarSpec:
    """Text that follows a grammar in the notation of llama.cpp and XGrammar (`root ::= …`) or of Lark (`start: …`)."""
    _require_size(ebnf.encode(), config.max_grammar_bytes, field)
    try:
        lark = any_to_lark(ebnf)
    # the converter has no common error type
    except Exception as error:
        raise InvalidField(f"{field}: not a grammar: {error}", param=field) from None
    return lark_spec(lark, field)


def lark_spec(lark: str, field: str) -> GrammarSpec:
    """A grammar in Lark's notation that the engine itself wrote."""
    return GrammarSpec(LLMatcher.grammar_from_lark(lark), field)


def require_depth(value: Any, deepest: int, field: str) -> None:
    """Raise InvalidField if a JSON value is nested deeper than `deepest`."""
    level: list[Any] = [value]
    for _ in range(deepest + 1):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _children(outer)]
        if not level:
            return
    raise InvalidField(f"{field}: nested deeper than {deepest} levels, the limit of this engine.", param=field)


def _children(value: JsonObject | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _require_size(encoded: bytes, limit: int, field: str) -> None:
    if len(encoded) > limit:
        raise InvalidField(f"{field}: {len(encoded)} bytes; this engine takes at most {limit}.", param=field)
