"""Random choices that stay on one side of the split.

Every choice that can be held out goes through here and leaves a mark, so a test can prove for any item that
nothing in it belongs to the other side.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from evals.slices.split import Split, side

T = TypeVar("T")
Mark = tuple[str, ...]

# First syllables that most byte-pair tokenizers cut alike with and without a space before them, so that copying a
# word to the start of a line is copying and not spelling.
FIRST_SYLLABLES = (
    "ba", "bo", "bra", "bre", "bri", "bro", "dre", "dro", "fe", "gre", "ka", "ki", "kla", "kle", "kli", "klo", "ko",
    "ku", "lu", "me", "mo", "mu", "ni", "ple", "plo", "she", "shi", "sho", "shu", "ska", "ske", "sko", "sti", "stu",
    "tho", "thu", "tra", "tro", "tu", "vu", "za", "zi", "zo", "zu",
)  # fmt: skip
NEXT_SYLLABLES = (
    "bi", "bo", "de", "di", "do", "du", "fe", "fi", "fo", "ga", "ge", "gi", "ke", "la", "le", "li", "lo", "ma", "me",
    "mo", "na", "ne", "no", "nu", "pe", "ra", "re", "ri", "ro", "se", "si", "ta", "te", "ti", "to", "tu", "va", "ve",
    "vi", "vo", "ze",
)  # fmt: skip
_TRIES = 10_000
_SPLICED = 0.5


class Draw:
    """A seeded source of words, numbers and phrases of one side."""

    def __init__(self, seed: int | str, split: Split) -> None:
        """Start at a seed. The same seed and split give the same item for ever."""
        self.random = random.Random(f"{seed}/{split}")
        self.split = split
        self.marks: list[Mark] = []

    def keep(self, kind: str, *parts: str) -> bool:
        """Whether a value is of this side; if so it is marked."""
        if side(kind, *parts) is not self.split:
            return False
        self.marks.append((kind, *parts))
        return True

    def word(self) -> str:
        """An invented word, such as "kavelo"."""
        for _ in range(_TRIES):
            word = self.random.choice(FIRST_SYLLABLES) + "".join(
                self.random.choices(NEXT_SYLLABLES, k=self.random.choice((1, 2)))
            )
            if self.keep("word", word):
                return word
        raise AssertionError("no word of this side: the syllables are too few")

    def known(self, words: Sequence[str]) -> str:
        """A word of a list, of those on this side; in training often the beginning of one and the end of another, since
        a few hundred words would be learnt by heart instead of copied."""
        for _ in range(_TRIES):
            word = self.random.choice(words)
            if self.split is Split.TRAIN and self.chance(_SPLICED):
                other = self.random.choice(words)
                word = word[: self.random.randint(1, len(word) - 1)] + other[self.random.randint(1, len(other) - 1) :]
            if self.keep("word", word):
                return word
        raise AssertionError("no word of this side: the list is too short")

    def words(self, count: int) -> list[str]:
        """So many different invented words, none of which begins another: an answer can then be told apart."""
        found: dict[str, None] = {}
        beginnings: set[str] = set()
        while len(found) < count:
            word = self.word()
            starts = {word[:end] for end in range(1, len(word) + 1)}
            if word not in beginnings and not any(start in found for start in starts):
                found[word] = None
                beginnings |= starts
        return list(found)

    def number(self, low: int, high: int) -> int:
        """A whole number of low to high; numbers below 10 are too few to be held out and belong to both sides."""
        for _ in range(_TRIES):
            number = self.random.randint(low, high)
            if number < 10 or self.keep("number", str(number)):
                return number
        raise AssertionError(f"no number of this side in {low} to {high}")

    def pair(self, low: int, high: int) -> tuple[int, int]:
        """Two numbers whose unordered pair is of this side; pairs with a number below 10 belong to both."""
        for _ in range(_TRIES):
            first, second = self.random.randint(low, high), self.random.randint(low, high)
            if min(first, second) < 10 or self.keep("pair", *map(str, sorted((first, second)))):
                return first, second
        raise AssertionError(f"no pair of this side in {low} to {high}")

    def phrase(self, kind: str, *parts: Sequence[str]) -> tuple[str, ...]:
        """One of each part; it is the combination that belongs to a side, so every part is seen in training."""
        for _ in range(_TRIES):
            chosen = tuple(self.random.choice(part) for part in parts)
            if self.keep(f"phrase:{kind}", *chosen):
                return chosen
        raise AssertionError(f"no {kind} phrase of this side: give it more parts")

    def one(self, values: Sequence[T]) -> T:
        """Any of the values, on either side: for what is not held out."""
        return self.random.choice(values)

    def some(self, values: Sequence[T], count: int) -> list[T]:
        """So many different ones of the values, on either side."""
        return self.random.sample(values, count)

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self.random.random() < share
