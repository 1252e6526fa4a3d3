"""jinja2's immutable sandbox with limits: a model file from the Hub may be hostile, and its template is a program.

jinja2 keeps a template from Python's internals, but bounds neither time nor memory. Here, each rendering has an
allowance of steps, CPU time and produced characters, and operations that could exceed it at once are measured before
they run. Loops and calls themselves read the clock, so neither threads nor signals are needed.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment, modifies_known_mutable
from jinja2.visitor import NodeTransformer

from engines.tokenizer.json_value import size_up_to

CPU_S = 3.0
"""CPU time of one rendering. The largest accepted conversation takes a tenth of this."""
LOOP_CPU_S = 0.002
"""The same on the event loop."""
PRODUCED = 1 << 27
"""Characters that one rendering may produce, including intermediate values. A list's item counts as several."""
ITEM = 32
"""Number of characters as which a list's item counts, because both take about the same memory."""
STEPS = 4_000_000
"""Loop iterations and calls of one rendering: some twenty for each value of the largest accepted conversation."""
CHECKED_STEPS = 64
"""Loop iterations and calls between two readings of the clock, each of which costs a system call."""
FORMAT_WIDTH = 999
"""Largest width of a formatted value."""
FILTERS_KEPT = frozenset(
    {
        "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format",
        "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
        "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "title", "trim",
        "truncate", "unique", "upper", "wordcount",
    }
)  # fmt: skip
"""jinja2's filters that templates may use. The others are for web pages, are random, or pad without a limit."""
DENIED = frozenset({"center", "encode", "expandtabs", "ljust", "rjust", "to_bytes", "translate", "zfill"})
"""Methods that turn short values into long ones."""
_WIDE_PERCENT = re.compile(r"\*|\d{4}")
_WIDE_BRACES = re.compile(r"\d{4}|\{[^{}]*:[^{}]*\{|\{\w*[.\[]")
"""Widths above `FORMAT_WIDTH`, computed widths, and fields that access a value's parts, whose size is unknown."""


class TooCostly(Exception):
    """The template exceeds its allowance."""


class Allowance(threading.local):
    """The remaining allowance of the rendering in this thread. jinja2 folds constants while it compiles a template,
    when no allowance exists: a limited operation then fails, and jinja2 leaves it to the rendering."""

    left: int
    steps: Iterator[None]

    def begin(self, cpu_s: float = CPU_S) -> None:
        """Grant a rendering its allowance."""
        self.left = PRODUCED
        # implemented in C, except for one reading of the clock in CHECKED_STEPS steps
        self.steps = itertools.chain.from_iterable(_steps(cpu_s))

    def spend(self, characters: int) -> None:
        """Count a step and the characters that it produced. Raises TooCostly."""
        self.left -= characters
        if self.left < 0:
            raise TooCostly(f"it produces more than {PRODUCED} characters")
        next(self.steps)

    def spend_value(self, value: Any) -> None:
        """Count a list or an object with its contents, as if written out: a value that occurs twice counts twice."""
        pending = [value]
        for _ in self.steps:
            if not pending:
                return
            inner = pending.pop()
            if isinstance(inner, list | tuple):
                pending.extend(inner)
            elif isinstance(inner, dict):
                pending.extend(inner)
                pending.extend(inner.values())
            self.left -= _size(inner)
            if self.left < 0:
                raise TooCostly(f"it produces more than {PRODUCED} characters")


def _steps(cpu_s: float) -> Iterator[Iterator[None]]:
    end_s = time.thread_time() + cpu_s
    for _ in range(STEPS // CHECKED_STEPS):
        yield itertools.repeat(None, CHECKED_STEPS)
        if time.thread_time() > end_s:
            raise TooCostly(f"it takes more than {cpu_s:g} s of a core")
    raise TooCostly(f"it takes more than {STEPS:,} loop rounds and calls")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template. The caller calls `allowance.begin` before each rendering."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, *extensions: Any) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[*extensions, loopcontrols])
        self.allowance = Allowance()
        self.filters = {name: FILTERS[name] for name in FILTERS_KEPT}
        self.filters.update(self._limited_filters())
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # without the base class's method, because templates read attributes often
        return (
            attr not in DENIED
            and SandboxedEnvironment.is_safe_attribute(self, obj, attr, value)
            and not modifies_known_mutable(obj, attr)
        )

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        if not __self.is_safe_callable(__obj):
            raise SecurityError(f"{__obj!r} is not safely callable")
        if isinstance(__obj, LoopContext):  # `loop(…)` of a recursive loop
            args = tuple(map(__self._stepped, args))
        measured = MEASURED.get(getattr(__obj, "__name__", ""))
        if measured is not None:
            text = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
            if isinstance(text, str):
                args = tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)
                __self.allowance.spend(measured(text, args, kwargs))
        result = __context.call(__obj, *args, **kwargs)
        if isinstance(result, dict):
            __self.allowance.spend_value(result)
        else:
            __self.allowance.spend(_size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            if isinstance(left, str):
                self.allowance.spend(_percent(left, right))
        elif operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                self.allowance.spend(left.bit_length() + right.bit_length())
            else:
                times, repeated = (left, right) if isinstance(left, int) else (right, left)
                if isinstance(times, int) and isinstance(repeated, str | list | tuple):
                    self.allowance.spend(max(times, 0) * _size(repeated))
        elif isinstance(left, int) and isinstance(right, int):
            self.allowance.spend(left.bit_length() * abs(right))
        return self.binop_table[operator](left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Metered().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of a macro, a block or a call. jinja2's compiled code calls this method."""
        parts = list(pieces)
        self.allowance.spend(sum(map(len, parts)))
        return "".join(parts)

    def _stepped(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items; each one costs a step."""
        return map(_FIRST, zip(items, self.allowance.steps, strict=False))

    def _limited_filters(self) -> dict[str, Callable[..., Any]]:
        """Filters that templates need although they can produce more than their input."""
        spend, spend_value = self.allowance.spend, self.allowance.spend_value

        def counted(result: Any) -> Any:
            spend(_size(result))
            return result

        def measured(name: str) -> Callable[..., Any]:
            """A filter whose result is at most as long as its input."""
            unlimited = FILTERS[name]

            @functools.wraps(unlimited)  # keeps the attributes that show jinja2 which arguments to pass
            def limited(*args: Any, **kwargs: Any) -> Any:
                return counted(unlimited(*args, **kwargs))

            return limited

        @pass_context
        def mapped(context: Context, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in FILTERS["map"](context, *args, **kwargs):
                spend(_size(item))
                yield item

        def formatted(value: str, *args: Any, **kwargs: Any) -> str:
            spend(_percent(str(value), kwargs or args))
            return str(FILTERS["format"](value, *args, **kwargs))

        def replaced(value: str, old: str, new: str, count: int | None = None) -> str:
            text = str(value)
            spend(_replaced(text, (str(old), str(new)), {}))
            return text.replace(str(old), str(new), -1 if count is None else count)

        def joined(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
            if attribute is not None:
                value = map(make_attrgetter(self, attribute), value)
            texts, separator = list(map(str, value)), str(d)
            spend(_joined(separator, (texts,), {}))
            return separator.join(texts)

        def indented(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
            lines = len(value.splitlines()) + 1
            spend(len(value) + lines * (len(width) if isinstance(width, str) else max(width, 0)))
            return str(FILTERS["indent"](value, width, first, blank))

        def rounded(value: float, precision: int = 0, method: Any = "common") -> float:
            spend(abs(precision))
            return float(FILTERS["round"](value, precision, method))

        def summed(value: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> Any:
            # a float start, because a sum of lists would copy the list for each item
            return sum(value if attribute is None else map(make_attrgetter(self, attribute), value), float(start) or 0)

        def displayed(value: Any) -> Any:
            spend_value(value)
            return value

        return {
            **{name: measured(name) for name in ("dictsort", "groupby", "list", "sort")},
            "map": mapped, "format": formatted, "replace": replaced, "join": joined, "indent": indented,
            "round": rounded, "sum": summed, STEPPED: self._stepped, ADDED: counted, DISPLAYED: displayed,
            CONCATENATED: lambda parts: self.concat(map(str, parts)),
        }  # fmt: skip


STEPPED, ADDED, DISPLAYED, CONCATENATED = "loop over", "+", "list or object", "~"
"""Filters that `_Metered` inserts, with names that no template can use."""
_FIRST = operator.itemgetter(0)
CHAINED = 16
"""Additions that are counted together: their result is at most this many times as long as values counted before."""


class _Metered(NodeTransformer):
    """Puts loops, displays of lists and objects, `~` and `+` under the allowance. jinja2 can intercept only `+`, and
    only every single one; here, additions that are printed at once are counted with the output."""

    def __init__(self) -> None:
        self._spared = set[int]()

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        for printed in node.nodes:
            self._spare(printed)
        return self.generic_visit(node)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        counted = id(node) not in self._spared
        if counted:
            self._spare(node)
        self.generic_visit(node)
        return _filtered(node, ADDED) if counted else node

    def _spare(self, node: nodes.Node) -> None:
        """Spare the additions of one chain, at most `CHAINED` of them."""
        chain = [node]
        for _ in range(CHAINED):
            if not chain:
                return
            link = chain.pop()
            if isinstance(link, nodes.Add):
                self._spared.add(id(link))
                chain += (link.left, link.right)
            elif isinstance(link, nodes.CondExpr):
                chain += (link.expr1, *filter(None, (link.expr2,)))

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(cast(nodes.Expr, node.iter), STEPPED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), CONCATENATED)

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        stored = isinstance(node, nodes.Tuple) and node.ctx != "load"
        constant = all(isinstance(item, nodes.Const) for item in node.iter_child_nodes())
        return node if stored or constant else _filtered(node, DISPLAYED)

    visit_Tuple = visit_Dict = visit_List  # noqa: N815


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _size(value: Any) -> int:
    """Number of characters as which a value counts, without the contents of a list's items."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict):
        return len(value) * ITEM
    return 1


def _replaced(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    old, new = args[:2]
    return len(text) + text.count(old) * len(new)


def _joined(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    (items,) = args
    return sum(map(len, items)) + len(text) * len(items)


def _percent(text: str, values: Any) -> int:
    if _WIDE_PERCENT.search(text):
        raise TooCostly("it formats a value to more than 999 characters")
    return len(text) + text.count("%") * (FORMAT_WIDTH + size_up_to((values,), PRODUCED))


def _braces(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    if _WIDE_BRACES.search(text):
        raise TooCostly("it formats a value to more than 999 characters, or reaches inside of it")
    return len(text) + text.count("{") * (FORMAT_WIDTH + size_up_to((args, dict(kwargs)), PRODUCED))


MEASURED: Mapping[str, Callable[[str, tuple[Any, ...], Mapping[str, Any]], int]] = MappingProxyType(
    {"replace": _replaced, "join": _joined, "format": _braces, "format_map": _braces}
)
"""For each method of a text, a function that computes the length of the method's result."""
