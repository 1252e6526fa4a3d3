"""What is completed: the text on both sides of the cursor, and whose it is. Windows and ends are the gateway's."""

from __future__ import annotations

import msgspec

STEPS = 4
"""A text that is too long begins at a step of the document, by so many parts of the bound: a beginning that slid with
every keystroke would be another file to whoever compares two requests."""


class Selected(msgspec.Struct, frozen=True):
    """What the editor's own list has selected: `text` in place of document[start:end] (characters)."""

    start: int
    end: int
    text: str


class Gap(msgspec.Struct, frozen=True):
    """Both sides have LF, whatever the document has. path, language: as an editor names them; empty: it does not."""

    prefix: str
    suffix: str
    path: str = ""
    language: str = ""


def find_gap(
    text: str,
    cursor: int,
    selected: Selected | None,
    *,
    prefix_chars: int,
    suffix_chars: int,
    path: str = "",
    language: str = "",
) -> Gap:
    """The gap at a cursor (characters from the document's start). With `selected`, as if it had been accepted."""
    if selected is None:
        before, after = text[:cursor], text[cursor:]
    else:
        before, after = text[: selected.start] + selected.text, text[selected.end :]
    before, after = before.replace("\r\n", "\n"), after[: 2 * suffix_chars].replace("\r\n", "\n")
    return Gap(bounded_end(before, prefix_chars), after[:suffix_chars], path, language)


def bounded_end(text: str, most: int) -> str:
    """At most so many characters from the end, from a line's start where there is one."""
    if len(text) <= most:
        return text
    step = max(1, most // STEPS)
    start = -(-(len(text) - most) // step) * step
    return text[text.find("\n", start - 1) + 1 or start :] or text[start:]
