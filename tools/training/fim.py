"""Cuts a piece of code into suffix, prefix and middle, and lays it out as the gateway's autocomplete does
(`engines/tokenizer/fill.py`).

    <|fim_suffix|> suffix <|fim_prefix|> prefix <|fim_middle|> middle <|endoftext|>

In three gaps of five, the half-typed line comes after the middle token, as part of the text that the model continues.
When such a model is served, a keystroke changes only the end of the prompt (EFIM, arXiv 2505.21889, by whole lines).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from engines.tokenizer.fill import FillTemplate

CLOSING = ")]}:,;'\""


class Gap(NamedTuple):
    """A text in three parts: prefix + middle + suffix is the text."""

    prefix: str
    middle: str
    suffix: str


class Coded(NamedTuple):
    """Token ids, and for each whether its prediction counts."""

    ids: list[int]
    counted: list[bool]


class FimTokens(NamedTuple):
    """Ids of the tokens around the parts."""

    prefix: int
    suffix: int
    middle: int
    end: int


def single_line(text: str, rng: random.Random) -> Gap | None:
    """The rest of one line from a cursor in it: mostly anywhere in the line, sometimes where a word begins or ends. One
    time in ten, it ends before the line's closing brackets and quotes, which editors insert ahead of the cursor. None
    if the text has no usable line."""
    lines = _line_spans(text)
    if not lines:
        return None
    start, end = rng.choice(lines)
    first = end - len(text[start:end].lstrip())
    if rng.random() < 0.2:
        edges = [at for at in range(first, end) if at == first or _is_edge(text, at)]
        cursor = rng.choice(edges)
    else:
        cursor = rng.randrange(first, end)
    closing = start + len(text[start:end].rstrip(CLOSING))
    stop = closing if closing > cursor and rng.random() < 0.1 else end
    return Gap(text[:cursor], text[cursor:stop], text[stop:])


def several_lines(text: str, rng: random.Random, most: int = 8) -> Gap | None:
    """From a cursor in or before a line to the end of one of the next `most` lines. None for a text of one line."""
    lines = _line_spans(text)
    if len(lines) < 2:
        return None
    index = rng.randrange(len(lines) - 1)
    start, end = lines[index]
    stop = lines[min(len(lines) - 1, index + rng.randint(1, most))][1]
    cursor = rng.choice((start, rng.randrange(start, end)))
    return Gap(text[:cursor], text[cursor:stop], text[stop:])


def broken(text: str, encode: Callable[[str], list[int]], rng: random.Random) -> Coded:
    """A text encoded as if the user had paused somewhere in one line of five. Most pauses are within a word, which is
    then split into unusual pieces. The last piece before a pause does not count, as it occurs only there: the model
    learns how to continue from it."""
    pauses = []
    for start, end in _line_spans(text):
        first = end - len(text[start:end].lstrip())
        if rng.random() < 0.2 and first + 1 < end:
            pauses.append(rng.randrange(first + 1, end))
    ids: list[int] = []
    counted: list[bool] = []
    for start, end in itertools.pairwise([0, *pauses, len(text)]):
        piece = encode(text[start:end])
        ids += piece
        counted += [True] * len(piece)
        if end < len(text):
            counted[-1] = False
    return Coded(ids, counted)


def lay_out(gap: Gap, encode: Callable[[str], list[int]], tokens: FimTokens, line_after: bool, room: int) -> Coded:
    """A gap's tokens, at most `room` of them, or none if the middle alone does not fit. The last piece before the
    cursor does not count, as in `broken`.

    line_after: whether the cursor's line comes after the middle token. Excess tokens are cut from the start of the
    prefix and the end of the suffix; the suffix keeps at most a third, or what a short prefix leaves.
    """
    template = FillTemplate(tokens.prefix, tokens.suffix, (tokens.middle,), "spm", line_after)
    cut = template.cut(gap.prefix)
    prefix, suffix = encode(gap.prefix[:cut]), encode(gap.suffix)
    # the half-typed line is encoded on its own, as in serving: the model learns to continue from a piece of a word
    typed = encode(gap.prefix[cut:])
    middle = typed + encode(gap.middle)
    sides = room - len(middle) - 4
    if sides < 0:
        return Coded([], [])
    kept_suffix = min(len(suffix), max(sides // 3, sides - len(prefix)))
    kept_prefix = min(len(prefix), sides - kept_suffix)
    ids = template.lay_out((), prefix[len(prefix) - kept_prefix :], suffix[:kept_suffix], [*middle, tokens.end])
    counted = [True] * len(ids)
    if typed:
        counted[len(ids) - len(middle) - 2 + len(typed)] = False
    elif kept_prefix:
        counted[len(ids) - len(middle) - 3] = False
    return Coded(ids, counted)


def _line_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of the lines that are not blank, without their newline."""
    spans = []
    start = 0
    for line in text.splitlines(keepends=True):
        end = start + len(line.rstrip("\r\n"))
        if text[start:end].strip():
            spans.append((start, end))
        start += len(line)
    return spans


def _is_edge(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    return (before.isalnum() or before == "_") != (after.isalnum() or after == "_") or not before.isalnum()
