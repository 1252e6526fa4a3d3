"""Long texts in the manner of RULER (Hsieh et al. 2024): the tasks that need no download, to a length in tokens.

What is looked for is made of invented words and numbers of the held-out side, hidden in sentences that repeat. The
score is the share of the wanted values that the answer names, as the paper counts.

    niah-single      a number of one word, hidden once          niah-multikey    with the numbers of three other words
    niah-multivalue  four numbers of one word                   niah-multiquery  the numbers of four words
    vt               variables that hold a number, by assignment of one to the next
    cwe              the ten words that occur often             fwe              the three that occur most often
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from evals.slices.checks import holds_word
from evals.slices.draw import Draw
from evals.slices.item import Question, Slice, user

_NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_MOST_UNITS = 1 << 16
_HOPS = 4
_COMMON = 10
_FREQUENT = 3
_RARE_TIMES = 3
_ZETA = 2.0


class TokenCounter(Protocol):
    """Counts as a model's tokenizer does."""

    @property
    def digest(self) -> str:
        """Differs when the tokenizer does."""

    def __call__(self, text: str) -> int:
        """Tokens of a text."""


class Puzzle(NamedTuple):
    """A task whose text can be made longer without another answer."""

    text: Callable[[int], str]
    """The whole question with so many units of what it is lengthened by, from 1."""
    wanted: tuple[str, ...]
    max_tokens: int


def slices(count: TokenCounter, lengths: Sequence[int]) -> tuple[Slice, ...]:
    """A slice for each task and length. lengths: in tokens, question and answer together."""
    return tuple(
        Slice(
            f"ruler-{name}-{length}",
            f"{about}, {length:,} tokens",
            0.0,
            functools.partial(_make, pose, length, count),
            parameters=f"{length}/{count.digest}",
        )
        for name, (about, pose) in TASKS.items()
        for length in lengths
    )


def _make(pose: Callable[[Draw, int], Puzzle], length: int, count: TokenCounter, draw: Draw) -> Question:
    puzzle = pose(draw, length)
    room = length - puzzle.max_tokens
    if count(puzzle.text(1)) > room:
        raise ValueError(f"{length} tokens are too few for this task; {count(puzzle.text(1)) + puzzle.max_tokens} do")
    text = puzzle.text(_units(lambda units: count(puzzle.text(units)) <= room))
    return Question(
        messages=(user(text),),
        reference=", ".join(puzzle.wanted),
        check=functools.partial(share_named, puzzle.wanted),
        max_tokens=puzzle.max_tokens,
        cluster=f"ruler/{puzzle.wanted[0]}",  # its text, which no other question is about
    )


def share_named(wanted: tuple[str, ...], answer: str) -> float:
    """Which share of the values stands in the answer."""
    return sum(holds_word(answer, value) for value in wanted) / len(wanted)


def _units(fits: Callable[[int], bool]) -> int:
    """The most that fits, where 1 does. Longer texts have more tokens."""
    low, high = 1, 2
    while high < _MOST_UNITS and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _needles(keys: int, values: int, asked: int, draw: Draw, _: int) -> Puzzle:
    """So many words with so many numbers each, of which some words are asked for."""
    words = draw.words(keys)
    numbers = {word: _numbers(draw, values) for word in words}
    lines = [f"One of the special magic numbers for {word} is: {one}." for word in words for one in numbers[word]]
    draw.random.shuffle(lines)
    places = sorted(draw.random.random() for _ in lines)
    targets = words[:asked]
    named = targets[0] if asked == 1 else f"{', '.join(targets[:-1])}, and {targets[-1]}"
    one = asked * values == 1
    what = f"is the special magic number for {named}" if one else f"are all the special magic numbers for {named}"

    def text(units: int) -> str:
        return (
            "Some special magic numbers are hidden within the following text. Make sure to memorize them. I will quiz "
            f"you about them afterwards.\n{_hidden(lines, places, units)}\nWhat {what} mentioned in the provided text?"
        )

    return Puzzle(text, tuple(number for word in targets for number in numbers[word]), 128)


def _numbers(draw: Draw, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[str(draw.random.randint(1_000_000, 9_999_999))] = None
    return list(found)


def _hidden(lines: Sequence[str], places: Sequence[float], units: int) -> str:
    """Sentences at their places, 0 to 1, among so many repetitions of the noise."""
    parts = [_NOISE] * units
    for line, place in reversed(list(zip(lines, places, strict=True))):
        parts.insert(round(place * units), line)
    return "\n".join(parts)


def _variables(draw: Draw, _: int) -> Puzzle:
    names = [word.upper() for word in draw.words(_HOPS + 1)]
    (number,) = _numbers(draw, 1)
    lines = [f"VAR {names[0]} = {number}."]
    lines += [f"VAR {name} = VAR {before}." for before, name in itertools.pairwise(names)]
    places = sorted(draw.random.random() for _ in lines)

    def text(units: int) -> str:
        return (
            "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
            f"{_hidden(lines, places, units)}\nQuestion: Find all variables that are assigned the value {number} in "
            "the text above."
        )

    return Puzzle(text, tuple(names), 96)


def _common(draw: Draw, length: int) -> Puzzle:
    """Ten words, each far more often than any of the others, whose number is what the text is lengthened by."""
    words = draw.words(_COMMON + max(40, length // 8))
    often, rare = words[:_COMMON], words[_COMMON:]
    times = max(_RARE_TIMES * 2, min(30, length // 120))
    order = draw.random.random()

    def text(units: int) -> str:
        listed = often * times + [rare[place % len(rare)] for place in range(min(units, len(rare)))] * _RARE_TIMES
        _shuffled(listed, f"{order}/{units}")
        numbered = " ".join(f"{place}. {word}" for place, word in enumerate(listed, 1))
        return (
            "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones "
            f"that appear most often.\n{numbered}\n"
            f"Question: What are the {_COMMON} most common words in the above list?"
        )

    return Puzzle(text, tuple(often), 160)


def _frequent(draw: Draw, _: int) -> Puzzle:
    """Coded words whose counts fall as a power of their rank; dots are noise."""
    words = draw.words(40)
    order = draw.random.random()

    def text(units: int) -> str:
        listed: list[str] = []
        for rank, word in enumerate(words, 2):
            listed += [word] * round(units * 4 / rank**_ZETA)
        listed += ["..."] * units
        # At the shortest length too, ranks must differ: the three first have counts of their own.
        listed += [word for place, word in enumerate(words[:_FREQUENT]) for _ in range(_FREQUENT - place)]
        _shuffled(listed, f"{order}/{units}")
        return (
            "Read the following coded text and track the frequency of each coded word. Find the three most frequently "
            f"appeared coded words. {' '.join(listed)}\n"
            "Question: Do not provide any explanation. Please ignore the dots '...'. What are the three most "
            "frequently appeared words in the above coded text?"
        )

    return Puzzle(text, tuple(words[:_FREQUENT]), 64)


def _shuffled(listed: list[str], seed: str) -> None:
    # By a source of its own: the length is found by trying several, and each must always be the same text.
    random.Random(seed).shuffle(listed)


TASKS: dict[str, tuple[str, Callable[[Draw, int], Puzzle]]] = {
    "niah-single": ("a hidden number", functools.partial(_needles, 1, 1, 1)),
    "niah-multikey": ("a hidden number among others", functools.partial(_needles, 4, 1, 1)),
    "niah-multivalue": ("four hidden numbers of a word", functools.partial(_needles, 1, 4, 1)),
    "niah-multiquery": ("hidden numbers of four words", functools.partial(_needles, 4, 1, 4)),
    "vt": ("variables followed through assignments", _variables),
    "cwe": ("the ten common words of a list", _common),
    "fwe": ("the three most frequent words", _frequent),
}
