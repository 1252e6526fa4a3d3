"""Edits in functions that have tests, replayed for models that fill gaps: whether the functions still return what they
returned.

The module with a completion and the module as it was are two programs in a sandbox, called with the same arguments. A
completion that is written otherwise passes if all of the module's functions behave the same.
"""

from __future__ import annotations

import ast
import functools
import inspect
import random
from types import ModuleType

import msgspec

from evals.sandbox.sandbox import Program, Sandbox
from evals.slices.code_edits import BLOCK_SHARE, Edit, EditSlice, parses
from evals.slices.code_files import Place, places
from evals.slices.tested import checks, graphs, intervals, tables, texts, units
from evals.slices.tested.calls import CALLS

NAME = "code_tests"
MODULES: tuple[ModuleType, ...] = (checks, graphs, intervals, tables, texts, units)
_CANDIDATE, _ORIGINAL = "_candidate", "_original"
# results as text: 1 is not True, nor 1.0
_RUN = """
import copy as _copy, json as _json

def {name}(calls):
    told = []
    for function, arguments in calls:
        try:
            told.append(globals()[function](*_copy.deepcopy(arguments)))
        except Exception as error:
            told.append({{"raised": type(error).__name__}})
    return _json.dumps(told, sort_keys=True)
"""
_TEST = "_calls = {calls!r}\nassert {candidate}(_calls) == {original}(_calls)"


def slice_in(sandbox: Sandbox) -> EditSlice:
    """The slice, whose completions are run in a sandbox."""
    about = "half-typed lines of functions with tests: whether the tests pass"
    return EditSlice(NAME, about, functools.partial(passes, sandbox), edit=edit_of, maker=__name__)


def edit_of(seed: int) -> Edit:
    """The edit of a seed; it never changes. The edit's file is `module.py:function`."""
    draw = random.Random(f"tested/{seed}")
    module, function, found = draw.choice(_functions())
    blocks = [place for place in found if place.end is not None]
    is_block = draw.random() < BLOCK_SHARE and bool(blocks)
    place = draw.choice(blocks if is_block else found)
    # one character at least is typed, and two are wanted
    cursor = draw.randint(place.start + 1, place.line_end - 2)
    end = place.end if is_block and place.end is not None else place.line_end
    return Edit(f"{module}.py:{function}", _text(module), cursor, end, is_block)


def passes(sandbox: Sandbox, edit: Edit, completion: str) -> float:
    """Whether every function of the module returns and raises the same with the completion as without. Raises
    IsolationUnavailable."""
    if not parses(edit, completion):
        return 0.0
    calls = [(name, given) for name, each in CALLS[edit.file.partition(".")[0]].items() for given in each]
    program = Program(
        code=(edit.completed(completion), _RUN.format(name=_CANDIDATE)),
        entry_point=_CANDIDATE,
        test=_TEST.format(calls=calls, candidate=_CANDIDATE, original=_ORIGINAL),
        setup=edit.text + _RUN.format(name=_ORIGINAL),
    )
    return float(sandbox.judge(program).passed)


@functools.cache
def _functions() -> tuple[tuple[str, str, tuple[Place, ...]], ...]:
    """Module, name and lines of code of each function."""
    found = []
    for module, calls in CALLS.items():
        text = _text(module)
        starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name in calls:
                first, end = starts[node.lineno], starts[node.end_lineno or node.lineno]
                inside = tuple(
                    msgspec.structs.replace(place, end=place.end if place.end is not None and place.end < end else None)
                    for place in places(text)
                    if first <= place.start < end
                )
                found.append((module, node.name, inside))
    return tuple(found)


@functools.cache
def _text(module: str) -> str:
    return inspect.getsource(next(each for each in MODULES if each.__name__.endswith(f".{module}")))
