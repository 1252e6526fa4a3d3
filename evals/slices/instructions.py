"""Instructions about form: how many, without which, in capitals, in quotes, between marks, a sentence with a word."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user
from evals.slices.vocabulary import COMMON, GROUPS

_OPENERS = ("", "Please ", "Now ", "Hi, ", "Could you please ")
_NAME = (
    "name {n} {group}.", "list {n} {group}.", "give me {n} {group}.", "tell me {n} {group}.",
    "write exactly {n} {group}.",
)  # fmt: skip
_WITHOUT = (
    "name {n} {group}, but not {word}.", "list {n} {group} without {word}.", "give me {n} {group} except {word}.",
    "tell me {n} {group}. Do not say {word}.",
)  # fmt: skip
_UPPER = (
    "write {} in capital letters.", "write {} in upper case.", "put {} in capital letters.", "say {} in upper case.",
)  # fmt: skip
_WRAP = (
    ('"{}"', ("put {} in quotes.", "write {} in double quotes.", "say {} in quotes.", "quote the word {}.")),
    ("[{}]", ("put {} in square brackets.", "write {} in square brackets.", "say {} in square brackets.")),
    ("({})", ("put {} in parentheses.", "write {} in parentheses.", "say {} in parentheses.")),
    ("**{}**", ("make {} bold in Markdown.", "write {} in bold Markdown.", "put two stars on each side of {}.")),
)
_SENTENCE = (
    "write a sentence with the word {}.", "write one sentence that has the word {}.", "use the word {} in a sentence.",
    "make a sentence with {}.",
)  # fmt: skip
_EITHER = (
    "answer only yes or no: is {} in this list: {}?", "is {} one of these: {}? Answer yes or no.",
    "yes or no: do you see {} here: {}?",
)  # fmt: skip
_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4}


def make(draw: Draw) -> Question:
    """One of six kinds of instruction."""
    kinds: tuple[Callable[[Draw], Question], ...] = (_name, _without, _without, _upper, _wrap, _sentence, _either)
    return draw.one(kinds)(draw)


def _name(draw: Draw) -> Question:
    opener, core, count, group = draw.phrase("instructions:name", _OPENERS, _NAME, tuple(_COUNTS), tuple(GROUPS))
    chosen = GROUPS[group][: _COUNTS[count]]
    text = core.format(n=count, group=_of(group, count))
    return _question(
        opener, core, text, ", ".join(chosen), functools.partial(_names, GROUPS[group], _COUNTS[count], "")
    )


def _without(draw: Draw) -> Question:
    group = draw.one(tuple(GROUPS))
    opener, core, count, _, word = draw.phrase(
        "instructions:without", _OPENERS, _WITHOUT, ("two", "three", "four"), (group,), GROUPS[group][:6]
    )
    chosen = [one for one in GROUPS[group] if one != word][: _COUNTS[count]]
    text = core.format(n=count, group=_of(group, count), word=word)
    return _question(
        opener, core, text, ", ".join(chosen), functools.partial(_names, GROUPS[group], _COUNTS[count], word)
    )


def _upper(draw: Draw) -> Question:
    # Letters of an invented word cannot be known to a model that reads tokens; words of everyday groups can.
    words = (*GROUPS["animals"], *GROUPS["colours"], *GROUPS["fruits"], *GROUPS["numbers"])
    opener, core, word = draw.phrase("instructions:upper", _OPENERS, _UPPER, words)
    return _question(opener, core, core.format(word), word.upper(), functools.partial(_is, word.upper()))


def _wrap(draw: Draw) -> Question:
    forms = {core: form for form, cores in _WRAP for core in cores}
    opener, core = draw.phrase("instructions:wrap", _OPENERS, tuple(forms))
    word = draw.word() if draw.chance(0.5) else draw.known(COMMON)
    wanted = forms[core].format(word)
    return _question(opener, core, core.format(word), wanted, functools.partial(_is, wanted))


def _sentence(draw: Draw) -> Question:
    opener, core = draw.phrase("instructions:sentence", _OPENERS, _SENTENCE)
    word = draw.word() if draw.chance(0.5) else draw.known(COMMON)
    return _question(opener, core, core.format(word), f"I like the word {word}.", functools.partial(_is_sentence, word))


def _either(draw: Draw) -> Question:
    opener, core = draw.phrase("instructions:either", ("", "Please ", "Now ", "Hi, ", "Tell me, "), _EITHER)
    words = list(dict.fromkeys(draw.known(COMMON) for _ in range(draw.one((4, 5, 6)))))
    word, *rest = words
    inside = draw.chance(0.5)
    shown = draw.some(words if inside else rest, len(words) if inside else len(rest))
    wanted = "yes" if inside else "no"
    return _question(
        opener, core, core.format(word, ", ".join(shown)), wanted.capitalize(), functools.partial(_is_either, wanted)
    )


def _of(group: str, count: str) -> str:
    if count != "one":
        return group
    return {"days of the week": "day of the week", "countries": "country", "cities": "city"}.get(group, group[:-1])


def _names(group: tuple[str, ...], count: int, without: str, answer: str) -> bool:
    """Whether the answer is so many different members of a group, and not the forbidden one."""
    if without and re.search(rf"(?<!\w){re.escape(without)}(?!\w)", answer, re.IGNORECASE):
        return False
    parts = [re.sub(r"^(?:[-*•]|\d+[.)]) *", "", part.strip()) for part in re.split(r",|\n|\band\b", answer)]
    said = [part.strip(" .!").lower() for part in parts if part.strip(" .!")]
    return len(said) == count == len(set(said)) and all(one in {name.lower() for name in group} for one in said)


def _is(wanted: str, answer: str) -> bool:
    return answer.strip() in (wanted, f"{wanted}.")


def _is_sentence(word: str, answer: str) -> bool:
    """Whether it is one sentence of at least three words, with the word, begun large and ended by a mark."""
    given = answer.strip()
    return (
        len(given.split()) >= 3
        and given[:1].isupper()
        and re.fullmatch(r"[^.!?\n]+[.!?]", given) is not None
        and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", given, re.IGNORECASE) is not None
    )


def _is_either(wanted: str, answer: str) -> bool:
    return answer.strip(" .!").lower() == wanted


def _question(opener: str, core: str, text: str, reference: str, check: Callable[[str], bool]) -> Question:
    asked = opened(opener, text)
    if opener == "Could you please ":
        asked = f"{asked[:-1]}?" if asked.endswith(".") else asked
    return Question((user(asked),), reference, check, 48, cluster=opener + core)
