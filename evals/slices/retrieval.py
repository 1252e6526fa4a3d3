"""Finding one value in a long list of keys and values, from a few lines up to 4,000 tokens.

Keys are invented words, so nothing but the text can answer. The checks want the value and no other of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from evals.slices.checks import names_only
from evals.slices.draw import Draw
from evals.slices.item import Message, Question, assistant, user

TOKENS_PER_LINE = {"number": 11.5, "word": 10.0}
"""Of the shipped chat tokenizer, measured; other tokenizers make shorter texts of it."""
_FRAME_TOKENS = 34
_TURN_TOKENS = 23
_INTRODUCTIONS = (
    "Here is a list.", "Read this list.", "Remember these.", "These are the codes.", "Look at this table.",
    "Here are some notes.",
)  # fmt: skip
_LINES = {"number": "The code of {} is {}.", "word": "The city of {} is {}."}
_ASK = {
    "number": (
        "What is the code of {}?", "Which code has {}?", "Give me the code of {}.", "Tell me the code of {}.",
        "Find the code of {}.", "I need the code of {}.",
    ),
    "word": (
        "What is the city of {}?", "Which city has {}?", "Give me the city of {}.", "Tell me the city of {}.",
        "Find the city of {}.", "I need the city of {}.",
    ),
}  # fmt: skip


def maker(tokens: int) -> Callable[[Draw], Question]:
    """A generator of questions about a text of about so many tokens."""
    return functools.partial(_make, tokens, 1)


def training_maker(shortest: int, longest: int, most_questions: int) -> Callable[[Draw], Question]:
    """A generator of conversations that ask several times about a text of a length between two."""
    return functools.partial(_make_training, shortest, longest, most_questions)


def _make_training(shortest: int, longest: int, most_questions: int, draw: Draw) -> Question:
    # Even in the logarithm: a short text teaches the lookup itself, and costs little.
    tokens = round(shortest * (longest / shortest) ** draw.random.random())
    return _make(tokens, draw.random.randint(1, max(1, min(most_questions, tokens // 40))), draw)


def _make(tokens: int, questions: int, draw: Draw) -> Question:
    kind = draw.one(("number", "word") if questions == 1 else ("number", "number", "word"))  # digits are alike
    room = tokens - _FRAME_TOKENS - _TURN_TOKENS * (questions - 1)
    count = max(2, round(room / TOKENS_PER_LINE[kind]))
    words = draw.words(count if kind == "number" else 2 * count)
    keys = words[:count]
    values = words[count:] or [str(draw.number(1000, 9999)) for _ in keys]
    facts = dict(zip(keys, values, strict=True))
    lines = " ".join(_LINES[kind].format(key, value) for key, value in facts.items())
    asked = draw.some(keys, min(questions, len(keys)))
    messages: list[Message] = []
    for place, key in enumerate(asked):
        introduction, question = draw.phrase(f"retrieval:{kind}", _INTRODUCTIONS, _ASK[kind])
        text = question.format(key)
        if place == 0:
            text = f"{introduction} {lines} {text}"
        else:
            messages.append(assistant(_LINES[kind].format(asked[place - 1], facts[asked[place - 1]])))
        messages.append(user(text))
    value = facts[asked[-1]]
    others = tuple({other for other in values if other != value})
    return Question(
        messages=tuple(messages),
        reference=_LINES[kind].format(asked[-1], value),
        check=functools.partial(names_only, value, others),
        max_tokens=40,
        cluster=keys[0],  # the text, which no other question is about
    )
