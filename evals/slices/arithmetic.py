"""Adding and subtracting numbers of up to two digits; no pair of two-digit numbers is on both sides.

The reference is the bare result: in equal trials a model of a few million parameters learnt that many times faster than
working written out digit by digit (docs/log.md). The check reads the last number, so other models may show theirs.
"""

from __future__ import annotations

import functools

from evals.slices.checks import last_number
from evals.slices.draw import Draw
from evals.slices.item import Message, Question, assistant, opened, user

_OPENERS = ("", "Please: ", "Quick question: ", "Tell me, ", "Hi, ")
_PLUS = (
    "what is {a} + {b}?", "compute {a} + {b}.", "{a} + {b} = ?", "add {a} and {b}.", "what is {a} plus {b}?",
    "how much is {a} + {b}?", "calculate {a} + {b}.", "what is the sum of {a} and {b}?", "{a} + {b}", "{a}+{b}",
)  # fmt: skip
_MINUS = (
    "what is {a} - {b}?", "compute {a} - {b}.", "{a} - {b} = ?", "subtract {b} from {a}.", "what is {a} minus {b}?",
    "how much is {a} - {b}?", "calculate {a} - {b}.", "take {b} away from {a}.", "{a} - {b}", "{a}-{b}",
)  # fmt: skip
_MOST_WORDS = 60


def make(draw: Draw) -> Question:
    """Two numbers of two digits."""
    return _question(draw, 10, 99)


def make_training(draw: Draw) -> Question:
    """As asked, some with numbers of one digit; and three times as often a run of short sums in one conversation, which
    teaches more per token."""
    if draw.chance(0.25):
        return _question(draw, *_range(draw))
    messages: list[Message] = []
    result = 0
    for turn in range(12):
        a, b = draw.pair(*_range(draw))
        plus = draw.chance(0.4)
        if turn:
            messages.append(assistant(str(result)))
        result = a + b if plus else a - b
        opener, core = draw.phrase(
            "arithmetic", _OPENERS if turn == 0 else _OPENERS[:2], (_PLUS if plus else _MINUS)[-4:]
        )
        messages.append(user(opener + core.format(a=a, b=b)))
    return Question(tuple(messages), str(result), functools.partial(is_right, result), 96, cluster=opener + core)


def is_right(result: int, answer: str) -> bool:
    """Whether the last number of a short answer is the result."""
    return len(answer.split()) <= _MOST_WORDS and last_number(answer) == result


def _range(draw: Draw) -> tuple[int, int]:
    """Of the numbers of a training sum. One digit and one digit is the table that all other sums are made of."""
    return draw.random.choices(((0, 9), (0, 99), (10, 99)), (0.25, 0.15, 0.6))[0]


def _question(draw: Draw, low: int, high: int) -> Question:
    a, b = draw.pair(low, high)
    plus = draw.chance(0.5)
    opener, core = draw.phrase("arithmetic", _OPENERS, _PLUS if plus else _MINUS)
    result = a + b if plus else a - b
    asked = core.format(a=a, b=b)
    return Question(
        messages=(user(opened(opener, asked)),),
        reference=str(result),
        check=functools.partial(is_right, result),
        max_tokens=96,
        cluster=opener + core,
    )
