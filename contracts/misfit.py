"""Splits msgspec's error about a value that does not fit its type into a sentence and the path of the field.

msgspec quotes input without escaping it, so a sentence may contain any text of a client: another path, or megabytes.
"""

from __future__ import annotations

import re

MAX_QUOTED = 200
"""Most characters of a client's own text that an error repeats."""
MAX_PATH = 1_000
"""Longest text that is accepted as a path. Paths consist of declared field names, so real ones are far shorter; a
longer one is a client's text."""
_UNKNOWN, _MISSING = "Object contains unknown field `", "Object missing required field `"
_AT = " - at `"
_WHERE = re.compile(r" - at `(?:key` in `)?\$((?:\.[^`.\[\]]+|\[(?:\d+|\.\.\.)\])*)`")


def sentence_and_path(said: str) -> tuple[str, str]:
    """The sentence without its ` - at …`, and the path without its `$.`: `messages[0].role`, `[...]` for any key of a
    map. The path is "" for the whole value.

    said: the text of a ValidationError. Only its very end is a path: a client's text precedes it, or is the name of an
    unknown field at the top level, which has no path. A name that contains "` - at `$.…" cannot be distinguished from a
    path; a client that sends it gets that path in the error.
    """
    at = said.rfind(_AT)
    if at < 0 or len(said) - at > MAX_PATH:
        return said, ""
    where, sentence = _WHERE.fullmatch(said, at), said[:at]
    # `x - at `$.y` is one name: its last backtick does not end a path
    if where is None or (sentence.startswith(_UNKNOWN) and not sentence.endswith("`")):
        return said, ""
    return sentence, where[1].removeprefix(".")


def unknown_field(sentence: str) -> str | None:
    """The full name of the unknown field; None for other errors."""
    return _quoted(sentence, _UNKNOWN)


def missing_field(sentence: str) -> str | None:
    """The name of the missing field; None for other errors."""
    return _quoted(sentence, _MISSING)


def _quoted(sentence: str, opening: str) -> str | None:
    return sentence[len(opening) : -1] if sentence.startswith(opening) else None


def shortened(text: str) -> str:
    """The text, shortened, because megabytes do not belong in an error, a log line or a trace."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"
