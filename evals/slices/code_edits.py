"""Edits of real files, replayed for models that fill gaps: a line that is half typed, its rest, and what a program can
tell of the completion.

Three slices ask the same items, each with a score of its own: the line is exactly what stood there, how near the
completion is to it, and whether the file with the completion is Python. A model that got better at one and worse at
another got worse.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import symtable
from collections.abc import Callable

from evals.slices.code_files import code_files, pack_digest, places
from evals.slices.item import Gap, Item
from evals.slices.split import Split
from evals.slices.version import version

PREFIX_CHARACTERS, SUFFIX_CHARACTERS = 3200, 1000
"""Of the file, in whole lines, what is sent at most. Whether it parses is told of all of it."""
BLOCK_SHARE = 0.25
"""Of the edits: the rest of a block is gone. Of the others, the rest of a line."""
LINE_TOKENS, BLOCK_TOKENS = 64, 160
LONGEST_COMPARED = 1000
"""Characters of a completion; more are not what stood there."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """A place in a file. What stood between `cursor` and `end` is wanted."""

    file: str
    text: str
    cursor: int
    end: int
    is_block: bool

    @property
    def wanted(self) -> str:
        """The rest of the line, or of the block."""
        return self.text[self.cursor : self.end]

    def completed(self, completion: str) -> str:
        """The file with a completion in place of what stood there."""
        return f"{self.text[: self.cursor]}{completion}{self.text[self.end :]}"

    @property
    def gap(self) -> Gap:
        """What an editor would send."""
        first = max(0, self.cursor - PREFIX_CHARACTERS)
        prefix = self.text[self.text.find("\n", first) + 1 if first else 0 : self.cursor]
        last = self.end + SUFFIX_CHARACTERS
        suffix = self.text[self.end : last if last >= len(self.text) else self.text.rfind("\n", self.end, last) + 1]
        return Gap(prefix, suffix, () if self.is_block else ("\n",))


def exact(edit: Edit, completion: str) -> float:
    """Whether the cursor's line is what stood there, space at its end apart."""
    return float(_first_line(completion) == _first_line(edit.wanted))


def similarity(edit: Edit, completion: str) -> float:
    """One less the Levenshtein distance by the longer one's length: 1 for the same text, 0 for one that shares
    nothing."""
    found, wanted = completion.rstrip()[:LONGEST_COMPARED], edit.wanted.rstrip()
    return 1.0 - distance(found, wanted) / max(len(found), len(wanted))


def parses(edit: Edit, completion: str) -> float:
    """Whether the file with the completion is Python. An empty one is none, though its file may be."""
    if not completion.strip():
        return 0.0
    try:
        # not ast.parse, which counts its depth for all threads together and raises SystemError where two are in it
        symtable.symtable(edit.completed(completion), edit.file, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    return 1.0


def distance(one: str, other: str) -> int:
    """Levenshtein's: characters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            diagonal, row[j] = row[j], min(diagonal + (left != right), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def edit_of(seed: int) -> Edit:
    """The same for a seed for ever, and another for another."""
    draw = random.Random(f"code/{seed}")
    file = draw.choice(code_files())
    found = places(file.text)
    blocks = [place for place in found if place.end is not None]
    is_block = draw.random() < BLOCK_SHARE and bool(blocks)
    place = draw.choice(blocks if is_block else found)
    # one character at least is typed, and two are wanted
    cursor = draw.randint(place.start + 1, place.line_end - 2)
    end = place.end if is_block and place.end is not None else place.line_end
    return Edit(file.name, file.text, cursor, end, is_block)


@dataclasses.dataclass(frozen=True)
class EditSlice:
    """A score of edits. edit: draws the edit of a seed; maker: the module that draws and scores."""

    name: str
    about: str
    score: Callable[[Edit, str], float]
    goal: float = 0.0
    edit: Callable[[int], Edit] = edit_of
    maker: str = __name__

    @property
    def fills_gaps(self) -> bool:
        """They are asked at gaps."""
        return True

    @property
    def size(self) -> int | None:
        """One for every seed."""
        return None

    @property
    def version(self) -> str:
        """Of the program and of the files."""
        return version(self.maker, self.name, pack_digest())

    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """The edit of a seed. Raises ValueError for training, which is held out of these files."""
        if split is not Split.HELD_OUT:
            raise ValueError(f"{self.name}: edits are never trained on")
        edit = self.edit(seed)
        return Item(
            messages=(),
            reference=edit.wanted,
            check=functools.partial(self.score, edit),
            max_tokens=BLOCK_TOKENS if edit.is_block else LINE_TOKENS,
            cluster=edit.file,
            gap=edit.gap,
            slice=self.name,
        )


EDIT_SLICES = (
    EditSlice("code_exact", "a half-typed line of a real file, completed exactly", exact),
    EditSlice("code_similarity", "the same edits: how near the completion is to what stood there", similarity),
    EditSlice("code_parses", "the same edits: whether the file with the completion is Python", parses),
)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip()
