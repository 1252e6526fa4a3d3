"""Real edits of Python files, and the keystrokes that make them, from the first changed place of the file to the last.

The edits are commits of this repository, kept with the benchmark so that every run replays the same ones. The pauses
between keys are drawn from a seed.
"""

from __future__ import annotations

import difflib
import lzma
import math
import random
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

TRACE = Path(__file__).parents[1] / "traces" / "python_edits.jsonl.xz"
KEY_S = 0.13
"""Median pause within a word: 90 words a minute."""
WORD_S = 0.25
"""The median pause after a word or a mark."""
THINK_S = 2.0
"""The median pause before a new line, and before some words."""
SPREAD = 0.35
"""The standard deviation of the pauses' logarithms."""
THOUGHTFUL = 1 / 12
"""The share of words before which the user pauses for `THINK_S`."""


class Edit(msgspec.Struct, frozen=True):
    """One file before and after a commit."""

    commit: str
    path: str
    before: str
    after: str


class Kind(StrEnum):
    """How much of a prompt an engine can have seen when a key is pressed."""

    COLD = "cold"
    """Nothing: the first key in a file."""
    JUMP = "jump"
    """The file, but with the cursor somewhere else: the first key at another place."""
    LINE = "line"
    """All but the line that Enter has just ended."""
    TYPED = "typed"
    """All but what this key has added."""


class Key(msgspec.Struct, frozen=True):
    """One keystroke, and the file around the cursor after it."""

    kind: Kind
    pause_s: float
    """The pause since the previous key."""
    prefix: str
    suffix: str


def load(path: Path = TRACE) -> list[Edit]:
    """Every recorded edit, each of another file."""
    with lzma.open(path) as file:
        return [msgspec.json.decode(line, type=Edit) for line in file]


def places(edit: Edit) -> list[tuple[str, str, str]]:
    """The places where an edit types, in order: the text before the cursor, the typed text, and the text after it.

    Text that the edit deletes there is deleted before the typing; places where nothing is typed are left out.
    """
    old, new = (text.splitlines(keepends=True) for text in (edit.before, edit.after))
    found = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        removed, typed = "".join(old[i1:i2]), "".join(new[j1:j2])
        head = _alike(removed, typed)
        tail = _alike(removed[head:][::-1], typed[head:][::-1])
        # Enter opens a new line, so its end is already after the cursor
        if not tail and typed.endswith("\n"):
            tail = 1
        middle = typed[head : len(typed) - tail]
        if middle.strip():
            before = "".join(new[:j1]) + typed[:head]
            following = typed[len(typed) - tail :] + "".join(old[i2:])
            found.append((before, middle, following))
    return found


def keys(edit: Edit, source: random.Random, most: int) -> Iterator[Key]:
    """Yield at most `most` keys that make an edit. The spaces that indent a new line come with its Enter."""
    pressed, kind = 0, Kind.COLD
    for before, typed, following in places(edit):
        at = 0
        while at < len(typed):
            if pressed == most:
                return
            start, at = at, _after_key(typed, at)
            pause_s = _pause_s(typed, start, kind, source)
            entered = typed[start] == "\n"
            yield Key(Kind.LINE if entered and kind is Kind.TYPED else kind, pause_s, before + typed[:at], following)
            pressed, kind = pressed + 1, Kind.TYPED
        kind = Kind.JUMP


def _after_key(typed: str, at: int) -> int:
    if typed[at] != "\n":
        return at + 1
    line = typed[at + 1 :].split("\n", 1)[0]
    return at + 1 + len(line) - len(line.lstrip(" "))


def _pause_s(typed: str, at: int, kind: Kind, source: random.Random) -> float:
    begins_word = at > 0 and not typed[at - 1].isalnum()
    thinks = kind is not Kind.TYPED or typed[at] == "\n" or (begins_word and source.random() < THOUGHTFUL)
    median = THINK_S if thinks else WORD_S if begins_word else KEY_S
    return source.lognormvariate(math.log(median), SPREAD)


def _alike(one: str, other: str) -> int:
    """The length of the common beginning."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)
