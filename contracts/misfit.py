"""Parses msgspec's error about a value that does not fit its type: a sentence and the path of the field.

msgspec quotes input without escaping it, so a sentence may hold any text that a client wrote: another path, or
megabytes.
"""

from __future__ import annotations

import re

MAX_QUOTED = 200
"""Characters of a client's own text that an error repeats."""
MAX_PATH = 1_000
"""Longest path that is believed. Paths are made of the names that types declare, so real ones are far shorter; a longer
one is a client's text."""
_UNKNOWN, _MISSING = "Object contains unknown field `", "Object missing required field `"
_AT = " - at `"
_WHERE = re.compile(r" - at `(?:key` in `)?\$((?:\.[^`.\[\]]+|\[(?:\d+|\.\.\.)\])*)`")


def sentence_and_path(said: str) -> tuple[str, str]:
    """The sentence without its ` - at …`, and the path without its `$.`: `messages[0].role`, `[...]` for any key of a
    map. The path is "" for the whole value.

    said: the text of a ValidationError. Only its very end is a path: a client's text stands before it, or is the name
    of an unknown field at the top, which has no path. Such a name that holds "` - at `$.…" cannot be distinguished from
    a path; a client that sends it gets that path in the error.
    """
    at = said.rfind(_AT)
    if at < 0 or len(said) - at > MAX_PATH:
        return said, ""
    where, sentence = _WHERE.fullmatch(said, at), said[:at]
    # `x - at `$.y` is one name: the backtick that ends it is not the path's
    if where is None or (sentence.startswith(_UNKNOWN) and not sentence.endswith("`")):
        return said, ""
    return sentence, where[1].removeprefix(".")


def unknown_field(sentence: str) -> str | None:
    """The name of the unknown field, in full length; None for other errors."""
    return _quoted(sentence, _UNKNOWN)


def missing_field(sentence: str) -> str | None:
    """The name of the missing field; None for other errors."""
    return _quoted(sentence, _MISSING)


def _quoted(sentence: str, opening: str) -> str | None:
    return sentence[len(opening) : -1] if sentence.startswith(opening) else None


def shortened(text: str) -> str:
    """The value, shortened: megabytes do not belong in an error, a log line or a trace."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"
