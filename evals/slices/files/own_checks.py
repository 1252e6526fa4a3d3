"""The checks that a line of somebody's own questions may ask for, each a struct of its own."""

from __future__ import annotations

import ast
import functools
import json
import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec

from evals.sandbox.sandbox import Program, Sandbox
from evals.slices.files.answer_code import program
from evals.slices.numbers import ends_with
from evals.slices.pattern import matches
from evals.slices.refusal_rules import declines, helps

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
Texts = Annotated[list[Text], msgspec.Meta(max_length=1000)]
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)```\s*", re.DOTALL)
_MOST_STEPS = 100_000
"""Of matching one pattern of a schema."""


class WrongCheck(Exception):
    """What a check says is no check. field: below `check`."""

    def __init__(self, field: str, message: str) -> None:
        """message: what is wrong."""
        super().__init__(message)
        self.field = field


class Exact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="exact"):
    """The answer is one of these texts, but for space around it."""

    answer: Text | Annotated[list[Text], msgspec.Meta(min_length=1)]
    ignore_case: bool = False

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check."""
        wanted = [self.answer] if isinstance(self.answer, str) else self.answer
        return functools.partial(_is_one_of, frozenset(self._plain(one) for one in wanted), self._plain)

    def _plain(self, text: str) -> str:
        plain = unicodedata.normalize("NFC", text).strip()
        return plain.casefold() if self.ignore_case else plain


class Numeric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="numeric"):
    """The last number in the answer is this one."""

    answer: Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1e300)] = 0.0
    """How far off it may be."""

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check."""
        wanted, tolerance = Decimal(repr(self.answer)), Decimal(repr(self.tolerance))
        return lambda answer: ends_with(answer, wanted, tolerance=tolerance)


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="schema"):
    """The answer is JSON, alone or in a code block, and valid by a JSON schema (draft 2020-12, or the one it names)."""

    schema: dict[str, Any]

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check. Raises WrongCheck for what is no schema, or asks for one elsewhere."""
        try:
            validator = jsonschema_rs.validator_for(
                self.schema, retriever=_refuse_to_fetch,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_STEPS),
            )  # fmt: skip
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise WrongCheck("schema", str(error).split("\n")[0]) from error
        return functools.partial(_is_valid, validator)


class Regex(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="regex"):
    """A pattern, as Python's `re` reads it, is found in the answer."""

    pattern: Text
    whole: bool = False
    """It must fit the whole answer."""

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check. Raises WrongCheck for what is no pattern."""
        try:
            re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise WrongCheck("pattern", f"is no regular expression: {error}") from error
        return lambda answer: matches(self.pattern, answer, whole=self.whole)


class Contains(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="contains"):
    """All of some texts, one of others and none of others stand in the answer, in any case."""

    all: Texts = msgspec.field(default_factory=list)
    any: Texts = msgspec.field(default_factory=list)
    none: Texts = msgspec.field(default_factory=list)

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check. Raises WrongCheck where it asks for nothing."""
        if not (self.all or self.any or self.none):
            raise WrongCheck("", "must give one of all, any and none")
        return self._holds

    def _holds(self, answer: str) -> bool:
        said = answer.casefold()
        return (
            bool(said.strip())
            and all(one.casefold() in said for one in self.all)
            and (not self.any or any(one.casefold() in said for one in self.any))
            and not any(one.casefold() in said for one in self.none)
        )


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="code"):
    """A Python function in the answer passes tests, in a sandbox."""

    entry_point: Text
    """The function's name."""
    test: Text
    """Python: raises, as `assert` does, when the function is wrong. Either itself, or in `check(candidate)`."""
    language: Literal["python"] = "python"

    def compile(self, sandbox: Sandbox) -> Callable[[str], bool]:
        """The check. Raises WrongCheck; IsolationUnavailable where code may not be run."""
        if not self.entry_point.isidentifier():
            raise WrongCheck("entry_point", f"{self.entry_point!r} is no name of a function")
        try:
            ast.parse(self.test)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise WrongCheck("test", f"is no Python: {error}") from error
        sandbox.require()
        return functools.partial(self._passes, sandbox)

    def _passes(self, sandbox: Sandbox, answer: str) -> bool:
        if not answer.strip():
            return False
        return sandbox.judge(Program(program(answer, self.entry_point), self.entry_point, self.test)).passed


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="refusal"):
    """The answer declines, or does not, by `evals/slices/refusal_rules.py`."""

    declines: bool

    def compile(self, _: Sandbox) -> Callable[[str], bool]:
        """The check."""
        return declines if self.declines else helps


AnyCheck = Exact | Numeric | Schema | Regex | Contains | Code | Refusal


def _is_one_of(wanted: frozenset[str], plain: Callable[[str], str], answer: str) -> bool:
    return plain(answer) in wanted


def _is_valid(validator: jsonschema_rs.Validator, answer: str) -> bool:
    fenced = _FENCED.fullmatch(answer)
    try:
        given = json.loads(fenced[1] if fenced else answer, parse_constant=_refuse_constant)
        return bool(validator.is_valid(given))
    except (ValueError, RecursionError, OverflowError):
        return False


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"{uri} lies elsewhere; a schema must be whole, with $ref into itself only")
