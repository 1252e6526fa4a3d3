"""Lists given in the question and wanted in another form: bullets, numbers, backwards, one of them, how many."""

from __future__ import annotations

import functools
import re

from evals.slices.checks import names_only
from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user
from evals.slices.vocabulary import COMMON

_OPENERS = ("", "Please ", "Now ", "Hi, ", "Okay, ", "And ")
_BULLETS = (
    "write these as a bullet list: {}", "make a bullet list of {}", "list these with bullets: {}",
    "turn this into bullet points: {}", "put these in a bullet list: {}",
)  # fmt: skip
_NUMBERED = (
    "write these as a numbered list: {}", "make a numbered list of {}", "number these: {}",
    "turn this into a numbered list: {}", "put these in a numbered list: {}",
)  # fmt: skip
_REVERSED = (
    "reverse this list: {}", "write this list in reverse order: {}", "give these in reverse order: {}",
    "write these backwards, last word first: {}",
)  # fmt: skip
_NTH = (
    "what is the {n} word of this list: {}?", "which word is {n} in this list: {}?", "give the {n} item of: {}",
    "name the {n} of these: {}", "which one is {n}: {}?", "tell me the {n} of these words: {}",
)  # fmt: skip
_COUNT = (
    "how many words are in this list: {}?", "count these words: {}", "count the items: {}",
    "how many items does this list have: {}?",
)  # fmt: skip
_MOST, _MOST_IN_TRAINING = 6, 10
"""Words of a list."""
_PLACES = ("first", "second", "third", "fourth", "last")


def make(draw: Draw) -> Question:
    """One of five things to do with three to six words."""
    return draw.one((_bullets, _numbered, _reversed, _nth, _count))(draw)


def make_training(draw: Draw) -> Question:
    """As asked, but more often backwards (going back a word is harder than going on), and some of ten words."""
    if draw.chance(0.4):
        return _reversed(draw, most=_MOST_IN_TRAINING if draw.chance(0.5) else _MOST)
    if draw.chance(0.3):
        return draw.one((_bullets, _numbered))(draw, most=_MOST_IN_TRAINING)
    return make(draw)


def _bullets(draw: Draw, most: int = _MOST) -> Question:
    text, words, core = _ask(draw, "bullets", _BULLETS, most=most)
    return Question(
        (user(text),),
        "\n".join(f"- {word}" for word in words),
        functools.partial(_is_bulleted, words),
        96,
        cluster=core,
    )


def _numbered(draw: Draw, most: int = _MOST) -> Question:
    text, words, core = _ask(draw, "numbered", _NUMBERED, most=most)
    reference = "\n".join(f"{place}. {word}" for place, word in enumerate(words, 1))
    return Question((user(text),), reference, functools.partial(_is_numbered, words), 96, cluster=core)


def _reversed(draw: Draw, most: int = _MOST) -> Question:
    text, words, core = _ask(draw, "reversed", _REVERSED, most=most)
    back = words[::-1]
    return Question(
        (user(text),), f"Reversed: {', '.join(back)}", functools.partial(_is_in_order, back), 96, cluster=core
    )


def _nth(draw: Draw) -> Question:
    place = draw.one(_PLACES)
    text, words, core = _ask(draw, f"nth:{place}", tuple(core.replace("{n}", place) for core in _NTH), fewest=4)
    word = words[-1] if place == "last" else words[_PLACES.index(place)]
    others = tuple(other for other in words if other != word)
    check = functools.partial(_names, word, others)
    return Question((user(text),), f"The {place} word is {word}.", check, 40, cluster=core)


def _count(draw: Draw) -> Question:
    text, words, core = _ask(draw, "count", _COUNT)
    names = ("three", "four", "five", "six")
    check = functools.partial(_counts, len(words))
    return Question((user(text),), f"There are {names[len(words) - 3]} words.", check, 40, cluster=core)


def _ask(
    draw: Draw, kind: str, cores: tuple[str, ...], fewest: int = 3, most: int = _MOST
) -> tuple[str, tuple[str, ...], str]:
    """The question, its words, all different, mostly known ones, and the way of asking."""
    opener, core = draw.phrase(f"lists:{kind}", _OPENERS, cores)
    count = draw.one(tuple(range(fewest, most + 1)))
    words: list[str] = []
    while len(words) < count:
        word = draw.word() if draw.chance(0.3) else draw.known(COMMON)
        if word not in words:
            words.append(word)
    text = core.format(", ".join(words))
    return opened(opener, text), tuple(words), core


def _is_bulleted(words: tuple[str, ...], answer: str) -> bool:
    """Whether every line is a bullet with its word, in order, and nothing else."""
    lines = answer.strip().split("\n")
    return [re.sub(r"^[-*•] ", "", line.strip(), count=1) for line in lines] == list(words) and all(
        re.match(r"[-*•] ", line.strip()) for line in lines
    )


def _is_numbered(words: tuple[str, ...], answer: str) -> bool:
    lines = [line.strip() for line in answer.strip().split("\n")]
    return lines in (
        [f"{place}. {word}" for place, word in enumerate(words, 1)],
        [f"{place}) {word}" for place, word in enumerate(words, 1)],
    )


def _is_in_order(words: tuple[str, ...], answer: str) -> bool:
    """Whether the words, after an introduction that ends with a colon, are these in this order."""
    said = re.findall(r"[\w'-]+", answer.rpartition(":")[2].lower())
    return said == [word.lower() for word in words]


def _names(word: str, others: tuple[str, ...], answer: str) -> bool:
    # Asked for one word of the list, an answer may say "word" itself when that is in the list.
    if "\n" in answer or "," in answer:
        return False
    return names_only(word, (other for other in others if other not in ("word", "list")), answer, most_words=12)


def _counts(count: int, answer: str) -> bool:
    names = {3: "three", 4: "four", 5: "five", 6: "six", 2: "two", 7: "seven"}
    numbers = {name: number for number, name in names.items()}
    said = [numbers.get(token, int(token) if token.isdigit() else None) for token in re.findall(r"\w+", answer.lower())]
    return [number for number in said if number is not None] == [count]
