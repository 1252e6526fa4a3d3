"""Runs answers of the generated slice `code` as programs of files are run: shut in, apart from what judges them.

The subset of Python, the builtins and the limits are those of `sandbox.py`, so that a verdict is the same in both. What
is asked of the program is one text, its results as JSON, made where it runs.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from evals.sandbox.isolation import Isolation
from evals.sandbox.sandbox import Limits, Program, Sandbox
from evals.slices import code_functions
from evals.slices.item import Slice
from evals.slices.sandbox import BUILTINS, CPU_S, MEMORY_BYTES, WALL_S, is_harmless

_LIMITS = Limits(cpu_s=CPU_S, memory_bytes=MEMORY_BYTES, wall_s=WALL_S)
_RUN = """
import builtins, json
_scope = {{"__builtins__": {{name: getattr(builtins, name) for name in {builtins!r}}}}}
exec(compile({code!r}, "answer", "exec"), _scope)
def _results(calls):
    return json.dumps([_scope[{name!r}](*arguments) for arguments in calls])
"""
_TEST = """
import json
_found = json.loads(_results({calls!r}))
assert [(type(one), one) for one in _found] == [(type(one), one) for one in {wanted!r}]
"""


def confined(one: Slice, sandbox: Sandbox) -> Slice:
    """The slice `code`, the answers of which are run in a sandbox; of the same questions, verdicts and version."""
    run = functools.partial(returns, sandbox.isolation)
    return dataclasses.replace(one, make=functools.partial(code_functions.make, returns=run))


def is_code(one: Slice) -> bool:
    """Whether answers to it are code of the model that is run."""
    return one.make is code_functions.make


def returns(isolation: Isolation, code: str, name: str, calls: list[list[Any]], wanted: list[Any]) -> bool:
    """As `sandbox.returns`. Raises IsolationUnavailable."""
    if not is_harmless(code):
        return False
    program = _RUN.format(builtins=BUILTINS, code=code, name=name)
    test = _TEST.format(calls=calls, wanted=wanted)
    return Sandbox(isolation, _LIMITS).judge(Program((program,), "_results", test)).passed
