"""Small Python functions, described in words; the answer is run on values it has not seen.

Names of the functions are invented words and constants vary; the held-out side has names, numbers and ways of asking
that training has not.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

from evals.slices import sandbox
from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of function: what it does in words, its body, its twin in Python, and values to try it on."""

    does: tuple[str, ...]
    arguments: str
    body: str
    twin: Callable[..., Any]
    """Called with the constant first."""
    calls: tuple[tuple[Any, ...], ...]
    constants: tuple[int, int] | None = None


_NUMBERS = ((0,), (1,), (7,), (-3,), (12,), (40,))
_PAIRS = ((0, 0), (1, 2), (7, 3), (-4, 9), (12, 12), (30, 4))
_LISTS: tuple[tuple[list[int], ...], ...] = (([],), ([1],), ([3, 1, 2],), ([5, 5, -2, 8],), ([10, 20, 30, 40, 50],))
_FULL_LISTS = _LISTS[1:]
_TEXTS = (("",), ("a",), ("Hello",), ("stone wall",), ("noon",))

FAMILIES = (
    Family(("adds two numbers", "returns the sum of two numbers"), "a, b", "a + b", lambda _, a, b: a + b, _PAIRS),
    Family(("subtracts b from a", "returns a minus b"), "a, b", "a - b", lambda _, a, b: a - b, _PAIRS),
    Family(
        ("multiplies two numbers", "returns the product of two numbers"), "a, b", "a * b", lambda _, a, b: a * b,
        _PAIRS,
    ),
    Family(
        ("returns the larger of two numbers", "gives the bigger of two numbers"), "a, b", "max(a, b)",
        lambda _, a, b: max(a, b), _PAIRS,
    ),
    Family(
        ("returns the smaller of two numbers", "gives the lower of two numbers"), "a, b", "min(a, b)",
        lambda _, a, b: min(a, b), _PAIRS,
    ),
    Family(
        ("checks if two values are equal", "says whether two values are the same"), "a, b", "a == b",
        lambda _, a, b: a == b, _PAIRS,
    ),
    Family(
        ("adds {k} to a number", "returns a number plus {k}"), "x", "x + {k}", lambda k, x: x + k, _NUMBERS, (2, 99),
    ),
    Family(
        ("multiplies a number by {k}", "returns {k} times a number"), "x", "x * {k}", lambda k, x: x * k, _NUMBERS,
        (2, 99),
    ),
    Family(
        ("checks if a number is larger than {k}", "says whether a number is more than {k}"), "x", "x > {k}",
        lambda k, x: x > k, ((0,), (5,), (50,), (100,), (1000,)), (2, 99),
    ),
    Family(("squares a number", "returns the square of a number"), "x", "x * x", lambda _, x: x * x, _NUMBERS),
    Family(
        ("checks if a number is even", "says whether a number is even"), "x", "x % 2 == 0", lambda _, x: x % 2 == 0,
        _NUMBERS,
    ),
    Family(
        ("checks if a number is odd", "says whether a number is odd"), "x", "x % 2 == 1", lambda _, x: x % 2 == 1,
        _NUMBERS,
    ),
    Family(("returns the negative of a number", "changes the sign of a number"), "x", "-x", lambda _, x: -x, _NUMBERS),
    Family(
        ("returns the absolute value of a number", "removes the sign of a number"), "x", "abs(x)", lambda _, x: abs(x),
        _NUMBERS,
    ),
    Family(
        ("returns the length of a list", "counts the items of a list"), "items", "len(items)",
        lambda _, items: len(items), _LISTS,
    ),
    Family(("sums a list", "returns the sum of a list"), "items", "sum(items)", lambda _, items: sum(items), _LISTS),
    Family(
        ("returns the first item of a list", "gives the first item of a list"), "items", "items[0]",
        lambda _, items: items[0], _FULL_LISTS,
    ),
    Family(
        ("returns the last item of a list", "gives the last item of a list"), "items", "items[-1]",
        lambda _, items: items[-1], _FULL_LISTS,
    ),
    Family(
        ("returns the largest item of a list", "finds the maximum of a list"), "items", "max(items)",
        lambda _, items: max(items), _FULL_LISTS,
    ),
    Family(
        ("returns the smallest item of a list", "finds the minimum of a list"), "items", "min(items)",
        lambda _, items: min(items), _FULL_LISTS,
    ),
    Family(
        ("reverses a list", "returns a list backwards"), "items", "items[::-1]", lambda _, items: items[::-1], _LISTS,
    ),
    Family(
        ("sorts a list", "returns a list in sorted order"), "items", "sorted(items)", lambda _, items: sorted(items),
        _LISTS,
    ),
    Family(
        ("doubles every item of a list", "returns every item of a list times two"), "items", "[x * 2 for x in items]",
        lambda _, items: [x * 2 for x in items], _LISTS,
    ),
    Family(
        ("keeps the items of a list above {k}", "returns the items of a list larger than {k}"), "items",
        "[x for x in items if x > {k}]", lambda k, items: [x for x in items if x > k],
        (([],), ([1, 200],), ([300, 2, 50],)), (2, 99),
    ),
    Family(
        ("reverses a string", "returns a string backwards"), "text", "text[::-1]", lambda _, text: text[::-1], _TEXTS,
    ),
    Family(
        ("makes a string upper case", "returns a string in capital letters"), "text", "text.upper()",
        lambda _, text: text.upper(), _TEXTS,
    ),
    Family(
        ("makes a string lower case", "returns a string in small letters"), "text", "text.lower()",
        lambda _, text: text.lower(), _TEXTS,
    ),
    Family(
        ("returns the length of a string", "counts the letters of a string"), "text", "len(text)",
        lambda _, text: len(text), _TEXTS,
    ),
    Family(
        ("splits a string into words", "returns the words of a string"), "text", "text.split()",
        lambda _, text: text.split(), _TEXTS,
    ),
    Family(
        ("repeats a string {k} times", "returns a string {k} times over"), "text", "text * {k}",
        lambda k, text: text * k, _TEXTS, (2, 20),
    ),
)  # fmt: skip
_OPENERS = ("", "Please ", "Now ", "Hi, ")
_ASK = (
    "write a Python function {name} that {does}.", "write a function {name} that {does}.",
    "define a Python function named {name} that {does}.", "code a Python function {name} that {does}.",
    "I need a Python function {name} that {does}.",
)  # fmt: skip
_NAMELESS = (
    "write a Python function that {does}.", "show me a Python function that {does}.", "code a function that {does}.",
)  # fmt: skip
Returns = Callable[[str, str, list[list[Any]], list[Any]], bool]
"""Whether the function of a name in a text of Python returns, called with each of the arguments, what is wanted."""
_FENCE = re.compile(r"```(?:python|py)?\n(.*?)```", re.DOTALL)


def make(draw: Draw, returns: Returns = sandbox.returns) -> Question:
    """One of the families; in one of five the function's name is left to the model. returns: runs the answer."""
    families = {does: family for family in FAMILIES for does in family.does}
    named = draw.chance(0.8)
    opener, core, does = draw.phrase("code", _OPENERS, _ASK if named else _NAMELESS, tuple(families))
    family = families[does]
    name = draw.word() if named else "function"
    constant = draw.number(*family.constants) if family.constants else 0
    text = core.format(name=name, does=does.format(k=constant))
    return Question(
        messages=(user(opened(opener, text)),),
        reference=f"def {name}({family.arguments}):\n    return {family.body.format(k=constant)}",
        check=functools.partial(is_right, family, constant, name if named else None, returns=returns),
        max_tokens=120,
        cluster=family.does[0],
    )


def is_right(family: Family, constant: int, name: str | None, answer: str, returns: Returns) -> bool:
    """Whether the answer defines the function and it returns what its twin does. name: None allows any."""
    fenced = _FENCE.search(answer)
    code = (fenced.group(1) if fenced else answer).strip() + "\n"
    defined = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
    if not defined or (name is not None and name not in defined):
        return False
    wanted = [family.twin(constant, *call) for call in family.calls]
    return returns(code, name or defined[-1], [list(call) for call in family.calls], wanted)
