"""Small facts. They are learnt by heart; what is held out is the way of asking for each of them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from evals.slices.checks import names_only
from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user

KYIV = ("Kiev", "Kyiv")
"""The usual spelling of earlier texts, and today's."""
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Portugal": "Lisbon",
    "Austria": "Vienna", "Poland": "Warsaw", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Greece": "Athens", "Ireland": "Dublin", "Hungary": "Budapest", "Belgium": "Brussels",
    "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv", "Japan": "Tokyo", "China": "Beijing", "India": "Delhi",
    "Iran": "Tehran", "Iraq": "Baghdad", "Thailand": "Bangkok", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Canada": "Ottawa", "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "high": "low", "old": "new", "open": "closed", "full": "empty",
    "light": "dark", "long": "short", "hard": "soft", "early": "late", "up": "down", "left": "right", "true": "false",
    "first": "last", "good": "bad", "wet": "dry", "happy": "sad", "strong": "weak", "day": "night",
}  # fmt: skip
COLOURS = {
    "grass": "green", "snow": "white", "blood": "red", "a lemon": "yellow", "coal": "black", "milk": "white",
    "the sky on a clear day": "blue", "a banana": "yellow", "a carrot": "orange", "chocolate": "brown",
}  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
LEGS = {"dog": 4, "cat": 4, "bird": 2, "spider": 8, "horse": 4, "ant": 6, "fish": 0, "hen": 2, "bee": 6, "cow": 4}
NUMBER_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")

OPENERS = ("", "Please tell me: ", "Do you know: ", "Hi! ", "Quick question: ", "Tell me, ")
CLOSERS = ("", " Thanks.", " Answer briefly.", " I forgot.")
_CAPITAL = (
    "what is the capital of {}?", "which city is the capital of {}?", "what's the capital city of {}?",
    "name the capital of {}.", "the capital of {} is which city?", "what is {}'s capital?", "capital of {}?",
)  # fmt: skip
_COUNTRY = (
    "which country has the capital {}?", "{} is the capital of which country?", "{} is the capital of what country?",
    "of which country is {} the capital?", "what country has {} as its capital?",
)  # fmt: skip
_OPPOSITE = (
    "what is the opposite of {}?", "name the opposite of {}.", "what's the opposite of the word {}?",
    "which word means the opposite of {}?", "give me the opposite of {}.",
)  # fmt: skip
_COLOUR = ("what colour is {}?", "which colour is {}?", "what color is {}?", "what is the colour of {}?")
_AFTER = ("what comes after {}?", "which {kind} comes after {}?", "what {kind} follows {}?", "what is after {}?")
_BEFORE = ("what comes before {}?", "which {kind} comes before {}?", "what {kind} is before {}?", "what is before {}?")
_LEGS = ("how many legs does a {} have?", "how many legs has a {}?", "a {} has how many legs?")


def make(draw: Draw) -> Question:
    """A fact of some kind; capitals are half of them."""
    kinds = (_capital, _capital, _capital, _country, _opposite, _colour, _neighbour, _legs)
    return draw.one(kinds)(draw)


class _Asked(NamedTuple):
    text: str
    entity: str
    core: str
    """The way of asking."""


def _ask(draw: Draw, kind: str, cores: tuple[str, ...], entities: tuple[str, ...], word: str = "") -> _Asked:
    """A question about one of the entities. word: what stands for {kind} in the phrases."""
    opener, core, closer, entity = draw.phrase(f"facts:{kind}", OPENERS, cores, CLOSERS, entities)
    text = core.format(entity, kind=word)
    return _Asked(opened(opener, text) + closer, entity, core)


def _capital(draw: Draw) -> Question:
    text, country, core = _ask(draw, "capital", _CAPITAL, tuple(CAPITALS))
    city = CAPITALS[country]
    return _question(core, text, f"The capital of {country} is {city}.", city, tuple(CAPITALS.values()))


def _country(draw: Draw) -> Question:
    text, city, core = _ask(draw, "country", _COUNTRY, tuple(CAPITALS.values()))
    country = next(key for key, value in CAPITALS.items() if value == city)
    return _question(core, text, f"{city} is the capital of {country}.", country, tuple(CAPITALS))


def _opposite(draw: Draw) -> Question:
    both = OPPOSITES | {value: key for key, value in OPPOSITES.items()}
    text, word, core = _ask(draw, "opposite", _OPPOSITE, tuple(both))
    others = tuple(other for other in both if other != word)
    return _question(core, text, f"The opposite of {word} is {both[word]}.", both[word], others)


def _colour(draw: Draw) -> Question:
    text, thing, core = _ask(draw, "colour", _COLOUR, tuple(COLOURS))
    colour = COLOURS[thing]
    return _question(core, text, f"{thing[0].upper()}{thing[1:]} is {colour}.", colour, tuple(set(COLOURS.values())))


def _neighbour(draw: Draw) -> Question:
    kind, row = draw.one((("day", DAYS), ("month", MONTHS)))
    step = draw.one((1, -1))
    text, entity, core = _ask(draw, f"{kind}{step}", _AFTER if step == 1 else _BEFORE, row, kind)
    value = row[(row.index(entity) + step) % len(row)]
    where = "after" if step == 1 else "before"
    return _question(core, text, f"{value} comes {where} {entity}.", value, tuple(one for one in row if one != entity))


def _legs(draw: Draw) -> Question:
    text, animal, core = _ask(draw, "legs", _LEGS, tuple(LEGS))
    legs = LEGS[animal]
    names = NUMBER_NAMES[legs]
    return Question(
        messages=(user(text),),
        reference=f"A {animal} has {names} legs.",
        check=functools.partial(_counts, str(legs), names),
        max_tokens=40,
        cluster=core,
    )


def _counts(digit: str, name: str, answer: str) -> bool:
    """Whether the answer says the number, as digit or word, and no other."""
    digits = tuple(str(number) for number in range(9))
    said = {name, digit} | ({"none", "no legs"} if digit == "0" else set())
    wrong = [one for one in (*digits, *NUMBER_NAMES, "none") if one not in said]
    return any(names_only(one, wrong, answer) for one in said)


def _question(core: str, text: str, reference: str, value: str, others: tuple[str, ...]) -> Question:
    return Question(
        messages=(user(text),),
        reference=reference,
        check=functools.partial(_names, value, others),
        max_tokens=40,
        cluster=core,
    )


def _names(value: str, others: tuple[str, ...], answer: str) -> bool:
    return names_only(value, others, answer.replace(*KYIV))
