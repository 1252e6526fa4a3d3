"""One question of a slice: what is asked, what a right answer is, and how a program tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypedDict

from evals.slices.draw import Draw, Mark
from evals.slices.split import Split


class Message(TypedDict):
    """A message as OpenAI's chat API takes it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclasses.dataclass(frozen=True)
class Question:
    """A conversation that ends with the user, and the judge of the next answer, as a slice's generator makes them."""

    messages: tuple[Message, ...]
    reference: str
    """An answer that passes; the one a model is trained on."""
    check: Callable[[str], bool]
    """Whether an answer is right. Pure, except that code is run in a sandbox."""
    max_tokens: int = 128
    """Enough for any right answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item(Question):
    """A question of a slice."""

    slice: str
    marks: tuple[Mark, ...] = ()
    """Every word, number and phrase in it that belongs to a side of the split."""


@dataclasses.dataclass(frozen=True)
class Slice:
    """A kind of question, the generator of its items and the goal of the shipped model."""

    name: str
    about: str
    goal: float
    make: Callable[[Draw], Question]
    train_make: Callable[[Draw], Question] | None = None
    """Makes training items, where they are richer than those asked (several lookups in one conversation)."""

    def item(self, seed: int, split: Split, *, for_training: bool = False) -> Item:
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
