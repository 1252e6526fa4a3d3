"""Selects the part of a file for the prompt if the whole file does not fit: the text around the cursor.

A prompt is cheap if the engine has seen its beginning, so a window must not slide with every keystroke. Its head is at
a multiple of some number of lines, counted from the first line. While a user types, the head stays until the prefix has
outgrown its share, and then moves by whole steps. Nor does the suffix's share follow the prefix token by token. Pure:
the caller provides each line's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

SHARES = 16
PREFIX_SHARES = 12
"""The prefix's share of the room, in sixteenths: 3 : 1."""
MAX_STEP_LINES = 32
STEP_TOKENS = 128
"""Tokens of the room for each line of the head's step, so that a small window loses little of its text in one step."""
STEP_CHARACTERS = 64
"""Step in characters if one line is longer than the room."""
LOOKED_AT = 8
"""Characters per token of the room that are read from the cursor; code has three or four per token."""

Counts = Callable[[Sequence[str]], Sequence[int]]
"""The cost of each text alone, in tokens."""


class Window(msgspec.Struct, frozen=True):
    """`prefix[start:]` and `suffix[:end]`."""

    start: int
    end: int


def window(prefix: str, suffix: str, room_tokens: int, counts: Counts) -> Window:
    """The window whose lines together cost at most `room_tokens`.

    The end of the prefix and the start of the suffix are kept, 3 : 1 if both are longer; room that one side leaves goes
    to the other. Sides are cut at line ends, and within a line only if that line alone is too long.
    """
    seen = room_tokens * LOOKED_AT
    before = _lines(prefix, max(0, len(prefix) - seen))
    after = _lines(suffix[:seen], 0)
    prefix_tokens, suffix_tokens = counts(before), counts(after)
    whole_prefix, whole_suffix = len(prefix) <= seen, len(suffix) <= seen
    share = room_tokens // SHARES
    least_suffix = room_tokens - PREFIX_SHARES * share
    if whole_suffix and sum(suffix_tokens) <= least_suffix:
        suffix_room, prefix_room = least_suffix, room_tokens - sum(suffix_tokens)
    elif whole_prefix and sum(prefix_tokens) <= PREFIX_SHARES * share:
        taken = -(-sum(prefix_tokens) // max(share, 1)) * share
        suffix_room, prefix_room = room_tokens - max(taken, sum(prefix_tokens)), room_tokens
    else:
        suffix_room, prefix_room = least_suffix, room_tokens - least_suffix
    if whole_prefix and sum(prefix_tokens) <= prefix_room:
        start = 0
    else:
        start = _start(prefix, before, prefix_tokens, prefix_room, counts)
    if whole_suffix and sum(suffix_tokens) <= suffix_room:
        end = len(suffix)
    else:
        end = _end(after, suffix_tokens, suffix_room, counts)
    return Window(start, end)


def step_lines(room_tokens: int) -> int:
    """Number of lines by which the head moves."""
    return min(MAX_STEP_LINES, max(1, room_tokens // STEP_TOKENS))


def _start(prefix: str, lines: Sequence[str], costs: Sequence[int], room_tokens: int, counts: Counts) -> int:
    """Start of the shown prefix. lines: its last lines, in order; the first may be incomplete."""
    position, number = len(prefix), prefix.count("\n")
    starts: list[int] = []
    on_grid: list[int] = []
    step, remaining = step_lines(room_tokens), room_tokens
    for line, cost in zip(reversed(lines), reversed(costs), strict=True):
        remaining -= cost
        position -= len(line)
        if remaining < 0:
            break
        if position == 0 or prefix[position - 1] == "\n":
            starts.append(position)
            if number % step == 0:
                on_grid.append(position)
        number -= 1
    if on_grid:
        return on_grid[-1]
    if starts:
        return starts[-1]
    # the cursor's own line is too long
    line_start = prefix.rfind("\n") + 1
    looked_at = max(0, len(prefix) - room_tokens * LOOKED_AT - line_start) // STEP_CHARACTERS * STEP_CHARACTERS
    inside = range(line_start + looked_at, len(prefix), STEP_CHARACTERS)
    return _first(inside, len(prefix), lambda at: counts([prefix[at:]])[0] <= room_tokens)


def _end(lines: Sequence[str], costs: Sequence[int], room_tokens: int, counts: Counts) -> int:
    """End of the shown suffix. lines: its first lines, in order; the last may be incomplete."""
    end, remaining = 0, room_tokens
    for line, cost in zip(lines, costs, strict=True):
        remaining -= cost
        if remaining < 0 or not line.endswith("\n"):
            break
        end += len(line)
    if end:
        return end
    first = lines[0]
    inside = range(len(first), 0, -STEP_CHARACTERS)
    return _first(inside, 0, lambda at: counts([first[:at]])[0] <= room_tokens)


def _first(positions: range, otherwise: int, fits: Callable[[int], bool]) -> int:
    """The first position that fits, or `otherwise`. All positions after one that fits must fit too."""
    low, high, found = 0, len(positions), otherwise
    while low < high:
        middle = (low + high) // 2
        if fits(positions[middle]):
            high, found = middle, positions[middle]
        else:
            low = middle + 1
    return found


def _lines(text: str, start: int) -> list[str]:
    r"""Lines with their ends, from `start` on; only `\n` ends a line."""
    lines = text[start:].split("\n")
    return [f"{line}\n" for line in lines[:-1]] + [lines[-1]]
