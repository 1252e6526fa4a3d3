"""One question of a slice: what is asked, what a right answer is, and how a program tells."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, Protocol, TypedDict

from evals.slices.draw import Draw, Mark
from evals.slices.split import Split
from evals.slices.version import version

CURSOR = "\N{BLACK VERTICAL RECTANGLE}"
"""Stands for the cursor where a gap is shown."""
SHOWN_CHARACTERS = 300
"""Of a gap, on either side."""


class Message(TypedDict):
    """A message as OpenAI's chat API takes it."""

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
    """A conversation that ends with the user, or a gap in a file, and the judge of the next answer, as a slice's
    generator makes them."""

    messages: tuple[Message, ...]
    reference: str
    """An answer that passes; the one a model is trained on."""
    check: Callable[[str], float]
    """How right an answer is, 0 to 1; most questions know only the two ends. Pure, except that code is run in a
    sandbox."""
    max_tokens: int = 128
    """Enough for any right answer."""
    cluster: str = dataclasses.field(kw_only=True)
    """What it was made from: a template, a document. Answers to questions of one cluster go wrong together, so that a
    comparison must not count them as independent."""
    gap: Gap | None = dataclasses.field(default=None, kw_only=True)
    """Of a question for models that fill gaps, which has no messages; None: a conversation."""

    @property
    def shown(self) -> str:
        """What people are shown of it: the last message, or the text around the cursor."""
        if self.gap is None:
            return self.messages[-1]["content"]
        return f"{self.gap.prefix[-SHOWN_CHARACTERS:]}{CURSOR}{self.gap.suffix[:SHOWN_CHARACTERS]}"

    def score(self, answer: str) -> float:
        """How right an answer is, 0 to 1."""
        return float(self.check(answer))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item(Question):
    """A question of a slice."""

    slice: str
    marks: tuple[Mark, ...] = ()
    """Every word, number and phrase in it that belongs to a side of the split."""


class Source(Protocol):
    """Anything that items are asked from: a generator, or a file."""

    @property
    def name(self) -> str:
        """What it is called, in results for ever."""

    @property
    def about(self) -> str:
        """What it asks, in a few words."""

    @property
    def goal(self) -> float:
        """The share of right answers it is to reach; 0 where nobody has set one."""

    @property
    def version(self) -> str:
        """Differs when its questions or checks do: results of two versions are never compared."""

    @property
    def fills_gaps(self) -> bool:
        """Whether its questions are gaps in files, for models of the tier `autocomplete`; else conversations, for
        those of the tier `chat`."""

    @property
    def size(self) -> int | None:
        """How many items there are, of seeds 0 to size - 1; None: one for every seed."""

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
    """Makes training items, where they are richer than those asked (several lookups in one conversation)."""

    parameters: str = ""
    """What its items depend on beside the program, such as a length: part of its version."""

    @property
    def fills_gaps(self) -> bool:
        """Generators ask conversations."""
        return False

    @property
    def size(self) -> int | None:
        """A generator never ends."""
        return None

    @property
    def version(self) -> str:
        """Of the program that makes and checks the items."""
        make = self.make.func if isinstance(self.make, functools.partial) else self.make
        return version(make.__module__, self.name, self.parameters)

    def item(self, seed: int, split: Split = Split.HELD_OUT, *, for_training: bool = False) -> Item:
        """The item of a seed: equal seeds give equal items. for_training: as training sees it."""
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
    """A sentence after its opener; where there is none, begun large."""
    return opener + text if opener else text[0].upper() + text[1:]
