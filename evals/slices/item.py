"""One question of a slice, its reference answer, and the check of an answer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, Protocol, TypedDict

from evals.slices.draw import Draw, Mark
from evals.slices.split import Split
from evals.slices.version import version

CURSOR = "\N{BLACK VERTICAL RECTANGLE}"
"""Marks the cursor where a gap is shown."""
SHOWN_CHARACTERS = 300
"""Characters of a gap that are shown, on either side."""


class Message(TypedDict):
    """A message of OpenAI's chat API."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclasses.dataclass(frozen=True)
class Gap:
    """A cursor in a file: the text on both sides of it."""

    prefix: str
    suffix: str
    stop: tuple[str, ...] = ()
    """Texts that end the completion."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A conversation that ends with the user, or a gap in a file, with the check of the next answer."""

    messages: tuple[Message, ...]
    reference: str
    """An answer that passes, and that a model is trained on."""
    check: Callable[[str], float]
    """Scores an answer from 0 to 1; most questions use only the two ends. It is pure, except that code runs in a
    sandbox."""
    max_tokens: int = 128
    """Enough for any right answer."""
    cluster: str = dataclasses.field(kw_only=True)
    """The template or document that it was made from. Answers to questions of one cluster fail together, so a
    comparison must not count them as independent."""
    gap: Gap | None = dataclasses.field(default=None, kw_only=True)
    """The gap of a question for models that fill gaps, which has no messages; None for a conversation."""

    @property
    def shown(self) -> str:
        """The part that people are shown: the last message, or the text around the cursor."""
        if self.gap is None:
            return self.messages[-1]["content"]
        return f"{self.gap.prefix[-SHOWN_CHARACTERS:]}{CURSOR}{self.gap.suffix[:SHOWN_CHARACTERS]}"

    def score(self, answer: str) -> float:
        """The score of an answer, 0 to 1."""
        return float(self.check(answer))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item(Question):
    """A question of a slice."""

    slice: str
    marks: tuple[Mark, ...] = ()
    """Every word, number and phrase in it that belongs to a side of the split."""


class Source(Protocol):
    """A source of items: a generator, or a file."""

    @property
    def name(self) -> str:
        """Its name, which never changes in results."""

    @property
    def about(self) -> str:
        """A description in a few words."""

    @property
    def goal(self) -> float:
        """The share of right answers that it should reach; 0 if none is set."""

    @property
    def version(self) -> str:
        """Changes with its questions and checks: results of two versions are never compared."""

    @property
    def fills_gaps(self) -> bool:
        """Whether its questions are gaps in files, for models of the tier `autocomplete`; else conversations, for
        those of the tier `chat`."""

    @property
    def size(self) -> int | None:
        """Number of items, with seeds 0 to size - 1; None if every seed has one."""

    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """The item of a seed: equal seeds give equal items."""


@dataclasses.dataclass(frozen=True)
class Slice:
    """A kind of question, the generator of its items and the goal of the shipped model."""

    name: str
    about: str
    goal: float
    make: Callable[[Draw], Question]
    train_make: Callable[[Draw], Question] | None = None
    """Makes training items, if they are richer than the others (several lookups in one conversation)."""

    parameters: str = ""
    """Further values that its items depend on, such as a length, which are part of its version."""

    @property
    def fills_gaps(self) -> bool:
        """False: generators make conversations."""
        return False

    @property
    def size(self) -> int | None:
        """None: a generator never ends."""
        return None

    @property
    def version(self) -> str:
        """Digest of the program that makes and checks the items."""
        make = self.make.func if isinstance(self.make, functools.partial) else self.make
        return version(make.__module__, self.name, self.parameters)

    def item(self, seed: int, split: Split = Split.HELD_OUT, *, for_training: bool = False) -> Item:
        """The item of a seed: equal seeds give equal items. for_training: as `train_make` makes it."""
        draw = Draw(f"{self.name}/{seed}", split)
        make = self.train_make if for_training and self.train_make else self.make
        question = make(draw)
        return Item(**vars(question), slice=self.name, marks=tuple(draw.marks))


def user(content: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    """An answer."""
    return {"role": "assistant", "content": content}


def system(content: str) -> Message:
    """A system prompt."""
    return {"role": "system", "content": content}


def opened(opener: str, text: str) -> str:
    """A sentence after its opener; without an opener, it begins with a capital letter."""
    return opener + text if opener else text[0].upper() + text[1:]
