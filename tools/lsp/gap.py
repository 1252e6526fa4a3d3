"""The gap to complete: the text on both sides of the cursor. The gateway chooses the window and the stops."""

from __future__ import annotations

import msgspec

STEPS = 4
"""A text over the limit starts at a multiple of the limit divided by this. A start that moved with each keystroke would
look like another file where requests are compared."""


class Selected(msgspec.Struct, frozen=True):
    """The selected item of the editor's own list: `text` in place of document[start:end] (characters)."""

    start: int
    end: int
    text: str


class Gap(msgspec.Struct, frozen=True):
    """Both sides have LF, whatever the document has. path, language: the editor's names; empty if it gives none."""

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
    """At most `most` characters from the end, beginning at a line's start if possible."""
    if len(text) <= most:
        return text
    step = max(1, most // STEPS)
    start = -(-(len(text) - most) // step) * step
    return text[text.find("\n", start - 1) + 1 or start :] or text[start:]
