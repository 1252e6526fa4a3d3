"""A slice whose questions are in a file, and the description of a file format."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from evals.sandbox.sandbox import Sandbox
from evals.slices.item import Item, Question
from evals.slices.split import Split


@dataclasses.dataclass(frozen=True)
class FileSlice:
    """Questions of a file, in its order. The seed of an item is its position."""

    name: str
    about: str
    questions: tuple[Question, ...]
    version: str
    """Digest of the file's bytes and of the program that reads and checks it."""
    goal: float = 0.0
    left_out: tuple[str, ...] = ()
    """Which of the file's questions are not asked and why, a sentence each."""

    @property
    def fills_gaps(self) -> bool:
        """False: files hold conversations."""
        return False

    @property
    def size(self) -> int | None:
        """Number of questions."""
        return len(self.questions)

    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """The question at a position, from 0. Raises IndexError past the last; ValueError for training."""
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
    """Globs of its files in the folder."""
    read: Callable[[Path, Sandbox], Sequence[FileSlice]]
    """Reads one file. Raises SliceFileError; IsolationUnavailable if code must be run and cannot be isolated."""
