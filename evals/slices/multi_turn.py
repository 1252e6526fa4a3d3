"""Conversations: what the user said earlier is remembered, and a rule the user or the system set is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable

from evals.slices import facts
from evals.slices.checks import holds_word, names_only, plain
from evals.slices.draw import Draw
from evals.slices.item import Message, Question, assistant, system, user
from evals.slices.vocabulary import CITIES, COMMON, NAMES

_TELL = {
    "name": ("My name is {}.", "I am called {}.", "Hi, my name is {}.", "Hello! My name is {}.", "Call me {}."),
    "city": ("I live in {}.", "My city is {}.", "My home is {}.", "Hi, I live in {}.", "By the way, I live in {}."),
    "word": ("Remember the word {}.", "The word is {}.", "Keep this word: {}.", "Please remember the word {}."),
    "number": ("My number is {}.", "Remember the number {}.", "The number is {}.", "Please remember the number {}."),
}  # fmt: skip
_NOTED = {
    "name": "Nice to meet you, {}!", "city": "{} is a nice city.", "word": "Okay, I will remember {}.",
    "number": "Okay, I will remember {}.",
}  # fmt: skip
_ASK = {
    "name": ("What is my name?", "What's my name?", "Do you remember my name?", "Who am I?", "Tell me my name."),
    "city": ("Where do I live?", "Which city do I live in?", "What is my city?", "Do you remember where I live?"),
    "word": ("What was the word?", "Which word did I say?", "Do you remember the word?", "Tell me the word."),
    "number": ("What was the number?", "Which number did I say?", "Do you remember the number?", "Tell me the number."),
}  # fmt: skip
_ANSWER = {
    "name": "Your name is {}.", "city": "You live in {}.", "word": "The word is {}.", "number": "The number is {}.",
}  # fmt: skip
_CORRECT = ("Sorry, I meant {}.", "No, it is {}.", "Wait, I meant {}.", "Correction: it is {}.", "It is {} now.")
_OH = ("", "Oh. ", "Hm. ", "Ah. ", "Oops. ", "One thing. ", "Okay, but: ", "Hold on. ")
_CORRECTED = "Okay, {}."
_END = (
    "end every answer with the word {}", "finish each answer with the word {}",
    "put the word {} at the end of each answer",
)  # fmt: skip
_START = (
    "start every answer with the word {}", "begin each answer with the word {}", "put the word {} before each answer",
)  # fmt: skip
_BEFORE = ("", "Now: ", "So, ", "Tell me, ", "A question: ", "Hi again. ")
_SHORT = ("answer with one word", "answer in one word only", "use just one word in each answer")
_FROM_NOW = ("From now on, {}.", "Please {} from now on.", "In this chat, {}.", "For all my questions: {}.")
_SYSTEM = ("You are a helpful assistant. Always {}.", "Always {}.", "Rule: {}.", "You must {}.")


def make(draw: Draw) -> Question:
    """Three in five recall something, the others keep a rule."""
    return _memory(draw) if draw.chance(0.6) else _rule(draw)


def _memory(draw: Draw) -> Question:
    """One or two things told, perhaps one corrected, up to two other questions, then one is asked for."""
    kinds = draw.some(tuple(_TELL), draw.one((1, 2)))
    asked = draw.one(kinds)
    messages: list[Message] = []
    known: dict[str, str] = {}
    for kind in kinds:
        tell, before, ask = draw.phrase(f"multi:{kind}", _TELL[kind], _BEFORE, _ASK[kind])
        known[kind] = _value(draw, kind)
        messages += [user(tell.format(known[kind])), assistant(_NOTED[kind].format(known[kind]))]
        if kind == asked:
            question = before + (ask[0].lower() + ask[1:] if before.endswith(", ") else ask)
    wrong: list[str] = []
    if kinds[-1] == asked and draw.chance(0.2):
        wrong.append(known[asked])
        known[asked] = _value(draw, asked, known[asked])
        hm, correction = draw.phrase("multi:correction", _OH, _CORRECT)
        messages += [user(hm + correction.format(known[asked])), assistant(_CORRECTED.format(known[asked]))]
    for _ in range(draw.one((0, 1, 1, 2))):
        filler = facts.make(draw)
        messages += [*filler.messages, assistant(filler.reference)]
    others = (*wrong, *(value for kind, value in known.items() if kind != asked))
    return Question(
        messages=(*messages, user(question)),
        reference=_ANSWER[asked].format(known[asked]),
        check=functools.partial(names_only, known[asked], others),
        max_tokens=40,
        cluster=f"{asked}: {question}",
    )


def _value(draw: Draw, kind: str, other_than: str = "") -> str:
    while True:
        if kind == "number":
            value = str(draw.number(10, 999))
        elif draw.chance(0.3) and kind != "city":
            value = draw.word() if kind == "word" else draw.word().capitalize()
        else:
            value = draw.known({"name": NAMES, "city": CITIES, "word": COMMON}[kind])
        if value != other_than:
            return value


def _rule(draw: Draw) -> Question:
    """A rule, set by the user or the system, kept for the last of one to three questions."""
    kind = draw.one(("end", "start", "short"))
    rules = {"end": _END, "start": _START, "short": _SHORT}[kind]
    word = "" if kind == "short" else (draw.word() if draw.chance(0.5) else draw.known(COMMON))
    by_system = draw.chance(0.4)
    before = (
        ("", "You are a chat model. ", "Be kind. ", "Be brief. ") if by_system else ("", "Hi. ", "Hello! ", "Okay. ")
    )
    opener, frame, rule = draw.phrase(f"multi:rule:{kind}", before, _SYSTEM if by_system else _FROM_NOW, rules)
    said = opener + frame.format(rule.format(word))
    messages: list[Message] = (
        [system(said)] if by_system else [user(said), assistant(_kept(kind, word, "Okay.", "Okay"))]
    )
    for _ in range(draw.one((0, 0, 1, 2))):
        early = facts.make(draw)
        messages += [*early.messages, assistant(_kept(kind, word, early.reference, _key(early)))]
    last = facts.make(draw)
    return Question(
        messages=(*messages, *last.messages),
        reference=_kept(kind, word, last.reference, _key(last)),
        check=functools.partial(_is_kept, kind, word, last.check),
        max_tokens=48,
        cluster=rule,
    )


def _key(question: Question) -> str:
    """The one word of a fact's answer that is right by itself."""
    words = [word.strip(".") for word in question.reference.split()]
    return next(word for word in reversed(words) if question.check(word))


def _kept(kind: str, word: str, answer: str, key: str) -> str:
    if kind == "short":
        return key[0].upper() + key[1:]
    return f"{answer} {word}" if kind == "end" else f"{word}: {answer}"


def _is_kept(kind: str, word: str, is_right: Callable[[str], float], answer: str) -> bool:
    """Whether the answer is right and keeps the rule."""
    if not is_right(answer):
        return False
    said = plain(answer).replace(":", " ").replace(",", " ").split()
    if kind == "short":
        return len(said) == 1
    return bool(said) and holds_word(answer, word) and plain(said[-1 if kind == "end" else 0]) == word.lower()
