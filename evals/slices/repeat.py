"""Saying again what was given: a word so many times, or a sentence word for word."""

from __future__ import annotations

import functools

from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user
from evals.slices.vocabulary import COMMON

_OPENERS = ("", "Please ", "Now ", "Hi, ", "Could you ")
_TIMES = (
    "repeat the word {} {} times", "say {} {} times", "write the word {} {} times", "print {} {} times",
    "write {} exactly {} times",
)  # fmt: skip
_SEPARATORS = {"": " ", ", separated by spaces": " ", ", separated by commas": ", ", ", one per line": "\n"}
_EXACTLY = (
    'repeat exactly: {}', 'say exactly: {}', 'repeat after me: {}', 'copy this: {}', 'write this again: {}',
    'repeat this text: {}',
)  # fmt: skip
_COUNTS = ("2", "3", "4", "5", "6", "7", "8")


def make(draw: Draw) -> Question:
    """Two in three are a word so many times."""
    return _times(draw) if draw.chance(2 / 3) else _exactly(draw)


def make_training(draw: Draw) -> Question:
    """As asked, and one in three a long text: every token of its answer teaches copying."""
    if draw.chance(2 / 3):
        return make(draw)
    opener, core = draw.phrase("repeat:exactly", _OPENERS, _EXACTLY)
    words = [
        str(draw.number(10, 9999)) if draw.chance(0.2) else draw.word() if draw.chance(0.7) else draw.known(COMMON)
        for _ in range(draw.random.randint(8, 40))
    ]
    return _question(opener, core, core.format(" ".join(words)), " ".join(words))


def is_right(wanted: str, answer: str) -> bool:
    """Whether the answer is the text, letter by letter; space around it, quotes and a final full stop are let pass."""
    given = answer.strip()
    return given in (wanted, f"{wanted}.", f'"{wanted}"')


def _times(draw: Draw) -> Question:
    opener, core, count, way = draw.phrase("repeat:times", _OPENERS, _TIMES, _COUNTS, tuple(_SEPARATORS))
    word = draw.word() if draw.chance(0.6) else draw.known(COMMON)
    asked = core.format(word, count) + way + ("?" if opener == "Could you " else ".")
    wanted = _SEPARATORS[way].join([word] * int(count))
    return _question(opener, core, asked, wanted)


def _exactly(draw: Draw) -> Question:
    opener, core = draw.phrase("repeat:exactly", _OPENERS, _EXACTLY)
    words = [draw.word() if draw.chance(0.5) else draw.known(COMMON) for _ in range(draw.one((2, 3, 4, 5, 6)))]
    return _question(opener, core, core.format(" ".join(words)), " ".join(words))


def _question(opener: str, core: str, asked: str, wanted: str) -> Question:
    return Question(
        messages=(user(opened(opener, asked)),),
        reference=wanted,
        check=functools.partial(is_right, wanted),
        max_tokens=96,
        cluster=opener + core,
    )
