r"""Decides by the cursor's position whether a completion is one line or a block. Pure.

    cursor                                        completion
    with text after it in its line, or directly   the rest of this line
    above a line that is indented deeper, unless
    the opener of that block is complete
    after a block's opener, or in an empty line   that block: until a line that is indented no deeper than its opener
    below it that is not indented deeper
    in an indented line, empty or half-typed      the rest of its block: until a line that is indented less
    elsewhere, and in prose at the end of a line  as the model ends it

A line that only closes the block is its last line, if the suffix has none. Further typing in a line changes none of
this until the line opens a block.

A bracket at a line's end opens a block in every language; so do Python's statements that end with a colon, and the
words of languages whose blocks end with a word. In an unknown language, brackets and Python's statements count. A pair
that an editor has already closed, `{|}`, is an open block; `f(|)` is a line with text after the cursor. Indentation is
counted in characters, as in all stop rules.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from gateway.wire.fill.stop_rules import CLOSING_LINE, StopRules, indentation
from gateway.wire.language import OTHER, known_language

Lines = Literal["auto", "single", "free"]
PROSE = frozenset({"markdown", "plaintext", "latex", "html", "xml"})
"""Languages whose lines open no blocks."""
WORDS = frozenset({"ruby", "lua", "elixir", "julia", "shellscript", "vim", "makefile", "erlang"})
"""Languages whose blocks end with a word."""
MAX_LINES_ABOVE = 256
"""Lines above the cursor that are searched for the opener of its block."""

_STATEMENT = re.compile(
    r"\s*(?:\)|(?:async\s+)?(?:def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b).*:\s*\Z",
    re.DOTALL,
)
"""A `)` that begins the line ends the head of a statement over several lines."""
_WORDS = re.compile(
    r"\s*(?:def|defp|defmodule|class|module|begin|case|function|struct|if|unless|while|until|for|elsif|elseif|else|when)\b"
    r"|.*\b(?:do|then|function)\b(?:\s*\|[^|]*\||\s*\([^)]*\))?\s*\Z",
    re.DOTALL,
)
_LONGEST_LINE = 1_024
"""Limit in characters. A longer line opens nothing: patterns are not tried on it."""
_LOOKED_AT = 32_768
"""Characters that are read on each side of the cursor."""


class Block(msgspec.Struct, frozen=True):
    """The end of a block."""

    min_indent: int | None = None
    closes_at: int | None = None
    """See `StopRules`."""


FREE = Block()


def by_context(rules: StopRules, lines: Lines, prefix: str, suffix: str, language: str) -> StopRules:
    r"""The rules, extended by the cursor's position; an indentation that the client has requested stays. lines: a
    model's `fim.lines`. prefix, suffix: with `\n` line ends. language: as a client names it."""
    if lines == "free":
        return rules
    block = None if lines == "single" else block_at(prefix, suffix, known_language(language) or OTHER)
    if block is None:
        return msgspec.structs.replace(rules, single_line=True)
    if rules.min_indent is not None:
        return rules
    return msgspec.structs.replace(rules, min_indent=block.min_indent, closes_at=block.closes_at)


def block_at(prefix: str, suffix: str, language: str) -> Block | None:
    """The end of the completion; None if it ends with the cursor's line."""
    prefix, suffix = prefix[-_LOOKED_AT:], suffix[:_LOOKED_AT]
    line = prefix[prefix.rfind("\n") + 1 :]
    rest, _, below = suffix.partition("\n")
    rest, under = rest.strip(), below.partition("\n")[0]
    has_body = bool(under.strip()) and indentation(under) > indentation(line)
    if language in PROSE:
        return None if rest else FREE
    if line.strip():
        opened = opens(line, language)
        if rest and opened != "statement" and not (opened and _is_pair(line, rest)):
            return None
        if opened and not (opened == "word" and has_body):  # a word may begin a head that is still incomplete
            return _block(opened, indentation(line), "" if rest else below)
    elif rest:
        return None
    indent, above = indentation(line), _above(prefix, len(line))
    if not line.strip():
        opener = next((one for one in above if one.strip()), "")
        if (opened := opens(opener, language)) and indent <= indentation(opener):
            return _block(opened, indentation(opener), below)
    if has_body:
        return None
    if not indent:
        return FREE
    outer = next((one for one in above if one.strip() and indentation(one) < indent), "")
    around = _block(opens(outer, language), indentation(outer), below)
    return Block(indent, around.closes_at)


def opens(line: str, language: str) -> str:
    """The opener at a line's end: `bracket`, `word` or `statement`; "" if there is none."""
    written = line.rstrip()
    if not written or len(written) > _LONGEST_LINE:
        return ""
    if written[-1] in "([{":
        return "bracket"
    if language in ("python", OTHER) and _STATEMENT.match(written):
        return "statement"
    if language in WORDS and _WORDS.match(written) and not written.endswith("end"):
        return "word"
    return ""


def _block(opened: str, outer: int, below: str) -> Block:
    """The end of an opened block. below: the text below the cursor's line, which shows whether the block is closed."""
    if opened not in ("bracket", "word"):
        return Block(outer + 1)
    following = next((line for line in below.split("\n") if line.strip()), "")
    deeper = bool(following) and indentation(following) > outer
    closed = deeper or (indentation(following) == outer and CLOSING_LINE.match(following.strip()) is not None)
    return Block(outer + 1, None if closed else outer)


def _is_pair(line: str, rest: str) -> bool:
    """Whether an editor has put the closing brace after the cursor."""
    return line.rstrip().endswith("{") and rest.startswith("}")


def _above(prefix: str, typed: int) -> list[str]:
    """The lines above the cursor's, nearest first."""
    lines = prefix[: len(prefix) - typed].rsplit("\n", MAX_LINES_ABOVE)
    return lines[-2:0:-1] + ([lines[0]] if len(lines) > 1 and len(lines) <= MAX_LINES_ABOVE else [])
