"""HumanEval+ (Liu et al. 2023): functions to write from signature and docstring, run on many inputs. JSON lines.

Either as EvalPlus publishes it (`base_input`, `plus_input`, `canonical_solution`, `atol`: what the canonical solution
returns is right) or with a `test` that defines `check(candidate)`. All tests of a task must pass. Programs and tests
run in `evals/sandbox/`: tests see values the program returned, never the program.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from evals.sandbox.sandbox import Program, Sandbox, packages
from evals.slices.files.answer_code import program
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.rows import content, json_lines
from evals.slices.item import Question, user
from evals.slices.version import version

MAX_TOKENS = 768
_NUMPY = re.compile(r"^\s*(?:import|from)\s+numpy\b", re.MULTILINE)
_ASK = "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{}\n```"
# EvalPlus's rule: equal, or of one type and numbers that are near. `find_zero` has many
# right answers: what it finds must be a zero.
_COMPARE = """
import copy, json

def _near(found, wanted, atol):
    if isinstance(wanted, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(wanted) and all(
            _near(one, other, atol) for one, other in zip(found, wanted))
    numbers = isinstance(found, (int, float)) and isinstance(wanted, (int, float))
    return found == wanted or numbers and abs(found - wanted) <= atol + 1e-7 * abs(wanted)

def _floats(value):
    return isinstance(value, float) or (
        isinstance(value, (list, tuple)) and bool(value) and all(isinstance(one, float) for one in value))

def check(candidate):
    for given in json.loads(_INPUTS):
        wanted = _REFERENCE(*copy.deepcopy(given))
        found = candidate(*copy.deepcopy(given))
        atol = _ATOL or (1e-6 if _floats(wanted) else 0)
        if _NAME == "find_zero":
            assert abs(sum(c * found ** i for i, c in enumerate(given[0]))) <= (_ATOL or 1e-4), (given, found)
        else:
            near = atol and type(found) is type(wanted) and _near(found, wanted, atol)
            assert found == wanted or near, (given, found, wanted)
"""


class _Row(msgspec.Struct):
    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str = ""
    test: str = ""
    base_input: list[list[Any]] | None = None
    plus_input: list[list[Any]] | None = None
    atol: float = 0


def read(path: Path, sandbox: Sandbox) -> Sequence[FileSlice]:
    """The whole file as one slice."""
    sandbox.require()
    questions = []
    for line, row in json_lines(path, _Row):
        if not row.entry_point.isidentifier():
            raise SliceFileError(path, line, "entry_point", f"{row.entry_point!r} is no name of a function")
        _require_python(path, line, "prompt", row.prompt)
        test, setup = _tests(path, line, row)
        questions.append(
            Question(
                messages=(user(_ASK.format(row.prompt.strip("\n"))),),
                reference=f"```python\n{row.prompt}{row.canonical_solution}\n```",
                check=functools.partial(passes, sandbox, row.prompt, row.entry_point, test, setup),
                max_tokens=MAX_TOKENS,
                cluster=row.task_id,
            )
        )
    return [FileSlice("humaneval-plus", "Python functions, run", tuple(questions), version(__name__, content(path)))]


def passes(sandbox: Sandbox, prompt: str, entry_point: str, test: str, setup: str, answer: str) -> bool:
    """Whether the program in an answer passes its tests."""
    if not answer.strip():
        return False
    return sandbox.judge(Program(program(answer, entry_point, prompt), entry_point, test, setup)).passed


def _tests(path: Path, line: int, row: _Row) -> tuple[str, str]:
    """The tests of a task, and what is run before them."""
    inputs = [*(row.base_input or ()), *(row.plus_input or ())]
    if inputs:
        reference = row.prompt + row.canonical_solution
        _require_python(path, line, "canonical_solution", reference)
        values = {"_INPUTS": json.dumps(inputs), "_ATOL": row.atol, "_NAME": row.entry_point}
        given = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        return given + _COMPARE, f"{reference}\n_REFERENCE = {row.entry_point}\n"
    if not row.test.strip():
        raise SliceFileError(path, line, "test", "is missing; give it, or base_input and canonical_solution")
    _require_python(path, line, "test", row.test)
    if _NUMPY.search(row.test) and not packages():
        said = "imports numpy, which is not installed here: pip install 'slipstream[evals]'"
        raise SliceFileError(path, line, "test", said)
    return row.test, row.prompt


def _require_python(path: Path, line: int, field: str, code: str) -> None:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SliceFileError(path, line, field, f"is no Python: {error}") from error


KIND = Kind("humaneval-plus", ("humaneval*/*.jsonl", "humaneval*/*.jsonl.gz", "[Hh]uman[Ee]val[Pp]lus*.jsonl*"), read)
