"""Objects in JSON: keys and values listed, told, or told beside a JSON schema. The answer must be the object alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user
from evals.slices.vocabulary import CITIES, COMMON, NAMES

_OPENERS = ("", "Please ", "Now ", "Hi, ")
_LISTED = (
    "give me JSON with {}.", "write a JSON object with {}.", "return JSON with {}.", "make a JSON object with {}.",
    "answer in JSON with {}.",
)  # fmt: skip
_TOLD = (
    "write this as JSON: {}.", "turn this into JSON: {}.", "put this in a JSON object: {}.", "as JSON: {}.",
    "give this as a JSON object: {}.",
)  # fmt: skip
_SCHEMA = (
    "answer with JSON that fits this schema: {schema}. {}.", "fill in this JSON schema: {schema}. {}.",
    "use this JSON schema: {schema}. {}.",
)  # fmt: skip
_TEXT_KEYS = ("name", "city", "color", "title", "word", "id", "label", "code")
_NUMBER_KEYS = ("age", "count", "price", "size", "year", "number")
_BOOLEAN_KEYS = ("active", "ready", "valid", "open", "done")
_LIST_KEYS = ("tags", "items", "words")

Object = dict[str, Any]


def make(draw: Draw) -> Question:
    """Two to four keys, asked for in one of three ways."""
    return _make(_object(draw, draw.one((2, 3, 3, 4)), functools.partial(_text, draw)), draw)


def make_training(draw: Draw) -> Question:
    """As asked, and one in three with up to six keys and only two texts: what follows a text then says nothing by
    itself. The held-out side has few names, so there texts occur twice as well."""
    if draw.chance(2 / 3):
        return make(draw)
    texts = (_text(draw), _text(draw))
    return _make(_object(draw, draw.one((2, 3, 4, 5, 6)), functools.partial(draw.one, texts)), draw)


def _make(wanted: Object, draw: Draw) -> Question:
    form = draw.one(("listed", "told", "schema"))
    if form == "listed":
        opener, core = draw.phrase("json:listed", _OPENERS, _LISTED)
        asked = core.format(_join([f"{key} {json.dumps(value)}" for key, value in wanted.items()]))
    else:
        opener, core = draw.phrase(f"json:{form}", _OPENERS, _TOLD if form == "told" else _SCHEMA)
        asked = core.format(_join([_told(key, value) for key, value in wanted.items()]), schema=_schema(wanted))
    return Question(
        messages=(user(opened(opener, asked)),),
        reference=json.dumps(wanted),
        check=functools.partial(is_right, json.dumps(wanted, sort_keys=True)),
        max_tokens=128,
        cluster=opener + core,
    )


def is_right(wanted: str, answer: str) -> bool:
    """Whether the answer, whole, is JSON and the wanted object. wanted: JSON with sorted keys."""
    try:
        given = json.loads(answer, object_pairs_hook=_without_repeats, parse_constant=_refuse)
    except ValueError:
        return False
    return json.dumps(given, sort_keys=True) == wanted


def _object(draw: Draw, count: int, text: Callable[[], str]) -> Object:
    wanted: Object = {}
    while len(wanted) < count:
        kind = draw.random.random()
        if kind < 0.5:
            wanted[draw.one(_TEXT_KEYS)] = text()
        elif kind < 0.8:
            wanted[draw.one(_NUMBER_KEYS)] = draw.number(2, 999)
        elif kind < 0.92:
            wanted[draw.one(_BOOLEAN_KEYS)] = draw.chance(0.5)
        else:
            wanted[draw.one(_LIST_KEYS)] = [text() for _ in range(draw.one((2, 3)))]
    return wanted


def _text(draw: Draw) -> str:
    return draw.word() if draw.chance(0.4) else draw.known(draw.one((COMMON, NAMES, CITIES)))


def _told(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{key} is {'true' if value else 'false'}"
    if isinstance(value, list):
        return f"the {key} are {_join(value)}"
    return f"the {key} is {value}"


def _schema(wanted: Object) -> str:
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array"}
    return json.dumps(
        {
            "type": "object",
            "properties": {key: {"type": kinds[type(value)]} for key, value in wanted.items()},
            "required": list(wanted),
        }
    )


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _without_repeats(pairs: list[tuple[str, Any]]) -> Object:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
