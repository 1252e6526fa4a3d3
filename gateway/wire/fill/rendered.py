"""Extracts the two sides of a gap from a prompt that a client has laid out itself, for any model family.

Such a prompt is only the client's text: its marks become control tokens because the gap is laid out again, for the
requested model. A prompt counts as laid out if it begins with one family's marks and has each of them once, in an order
that the family knows. Any other prompt is text to continue.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from engines.tokenizer.fill import FAMILIES, Family
from gateway.wire.gap import Gap, Snippet
from gateway.wire.prepared import Target

BEGINNINGS = ("<s>", "<|endoftext|>", "<bos>", "<｜begin▁of▁sentence｜>")
"""Begin-of-text tokens as clients write them; the tokenizer adds its own."""

Sides = tuple[str, str, tuple[Snippet, ...]]
"""Prefix, suffix, and the files before them. A file's path is the first line of its text, as the client wrote it."""


def rendered_gap(prompt: str, target: Target) -> Gap | None:
    """The gap that a prompt describes, for a model that has it laid out again; None for a text to continue."""
    if target.model.fim.rendered != "parse" or target.fill is None:
        return None
    found = parse(prompt)
    return None if found is None else Gap(*found)


def parse(prompt: str) -> Sides | None:
    """The gap that a prompt describes; None if it describes none."""
    for beginning in BEGINNINGS:
        prompt = prompt.removeprefix(beginning)
    for family in FAMILIES:
        if (found := _parse(prompt, family)) is not None:
            return found
    return None


def _parse(prompt: str, family: Family) -> Sides | None:
    prefix_mark, suffix_mark, middle_mark = _written(family)
    first = (prefix_mark, suffix_mark, *family.files, *([family.repository] if family.repository else []))
    if not prompt.startswith(first):  # checked before a long text is searched
        return None
    marks = (prefix_mark, suffix_mark, *([middle_mark] if middle_mark else []))
    if any(prompt.count(mark) != 1 for mark in marks):
        return None
    order = sorted(marks, key=prompt.index)
    head, *sides = _split(prompt, order)
    snippets = _files(head, family)
    if snippets is None:
        return None
    text = dict(zip(order, sides, strict=True))
    if middle_mark is None:
        # the text after the prefix's mark is continued: the first part can only be the suffix
        return (text[prefix_mark], text[suffix_mark], snippets) if order[0] == suffix_mark else None
    if order[-1] != middle_mark:
        return None
    prefix, suffix, typed = text[prefix_mark], text[suffix_mark], text[middle_mark]
    if prefix_mark == "<PRE>":
        # CodeLlama's marks have a space before and the prefix's one after it
        prefix, suffix = prefix.removeprefix(" ").removesuffix(" "), suffix.removesuffix(" ")
    return prefix + typed, suffix, snippets


def _written(family: Family) -> tuple[str, str, str | None]:
    """The marks as clients write them: SentencePiece's `▁` is a space, which is not part of the mark."""
    middle = None if family.middle is None else family.middle.removeprefix("▁")
    return family.prefix.removeprefix("▁"), family.suffix.removeprefix("▁"), middle


def _split(prompt: str, marks: Sequence[str]) -> list[str]:
    """The text before, between and after marks in this order."""
    starts = [prompt.index(mark) for mark in marks]
    ends = [0, *(start + len(mark) for start, mark in zip(starts, marks, strict=True))]
    return [prompt[end:start] for end, start in itertools.zip_longest(ends, starts)]


def _files(head: str, family: Family) -> tuple[Snippet, ...] | None:
    """The text before the gap, file by file; None if it is other text."""
    if family.repository and head.startswith(family.repository):
        head = head.removeprefix(family.repository).partition("\n")[2]
    if not head:
        return ()
    if not head.startswith(family.files):
        return None
    texts = re.split("|".join(map(re.escape, family.files)), head)
    return tuple(Snippet("", text) for text in texts[1:])
