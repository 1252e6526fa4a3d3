"""What is completed: the text on both sides of the cursor, cut to a bound, and whether a line or a block is wanted."""

from __future__ import annotations

import msgspec

GRID_LINES = 32
"""A long file's head is cut at every so many lines, counted from its first: it would else slide with each new line, and
engines could reuse nothing of what they had read."""
OPENS_BLOCK = (":", "{", "(", "[", "=>", "->")


class Selected(msgspec.Struct, frozen=True):
    """What the editor's own list has selected: `text` in place of document[start:end] (characters)."""

    start: int
    end: int
    text: str


class Gap(msgspec.Struct, frozen=True):
    """block: more than the rest of one line is wanted. Both sides have LF, whatever the document has."""

    prefix: str
    suffix: str
    block: bool


def find_gap(
    text: str, cursor: int, selected: Selected | None, *, invoked: bool, prefix_chars: int, suffix_chars: int
) -> Gap:
    """The gap at a cursor (characters from the document's start). With `selected`, as if it had been accepted.

    invoked: the user asked for it, who then gets a block wherever nothing follows on the line.
    """
    if selected is None:
        before, after = text[:cursor], text[cursor:]
    else:
        before, after = text[: selected.start] + selected.text, text[selected.end :]
    before, after = before.replace("\r\n", "\n"), after[: 2 * suffix_chars].replace("\r\n", "\n")
    return Gap(
        keep_end(before, prefix_chars), keep_start(after, suffix_chars), wants_block(before, after, invoked=invoked)
    )


def wants_block(before: str, after: str, *, invoked: bool) -> bool:
    """Nothing follows on the line, and it is empty so far, opens something, or the user asked."""
    line = before[before.rfind("\n") + 1 :].strip()
    rest = after.partition("\n")[0].strip()
    return not rest and (invoked or not line or line.endswith(OPENS_BLOCK))


def keep_end(text: str, most: int) -> str:
    """At most so many characters from the end: from a line of the grid where that leaves half of them, else from any
    line, else from any character."""
    if len(text) <= most:
        return text
    cut = len(text) - most
    line_start = text.find("\n", cut - 1) + 1
    if not line_start:
        return text[cut:]
    grid_start = line_start
    for _ in range(-text.count("\n", 0, line_start) % GRID_LINES):
        grid_start = text.find("\n", grid_start) + 1
        if not grid_start:
            return text[line_start:]
    return text[grid_start:] if 2 * (len(text) - grid_start) >= most else text[line_start:]


def keep_start(text: str, most: int) -> str:
    """At most so many characters from the start, whole lines where there is an end of one."""
    if len(text) <= most:
        return text
    return text[: text.rfind("\n", 0, most) + 1] or text[:most]
