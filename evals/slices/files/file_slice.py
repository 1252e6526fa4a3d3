"""A slice whose questions stand in a file, and the kinds of file there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from evals.sandbox.sandbox import Sandbox
from evals.slices.item import Item, Question
from evals.slices.split import Split


@dataclasses.dataclass(frozen=True)
class FileSlice:
    """Questions of a file, in its order. The seed of an item is its place."""

    name: str
    about: str
    questions: tuple[Question, ...]
    version: str
    """Of the file's bytes and the program that reads and checks it."""
    goal: float = 0.0
    left_out: tuple[str, ...] = ()
    """Why which of the file's questions are not asked, a sentence each."""

    @property
    def fills_gaps(self) -> bool:
        """Files hold conversations."""
        return False

    @property
    def size(self) -> int | None:
        """How many questions there are."""
        return len(self.questions)

    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """The question of a place, from 0. Raises IndexError past the last; ValueError for training."""
        if split is not Split.HELD_OUT:
            raise ValueError(f"{self.name}: questions of a file are never trained on")
        if not 0 <= seed < len(self.questions):
            raise IndexError(f"{self.name} has {len(self.questions)} questions, none of place {seed}")
        return Item(**vars(self.questions[seed]), slice=self.name)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A published format, or a tenant's own."""

    name: str
    patterns: tuple[str, ...]
    """Where in the folder its files lie, as globs."""
    read: Callable[[Path, Sandbox], Sequence[FileSlice]]
    """Reads one file. Raises SliceFileError; IsolationUnavailable where code must be run and may not be."""
