"""Replayed edits that are judged by tests: what is asked, that tests reach every line of it, and what passes."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.sandbox.sandbox import Sandbox
from evals.slices import code_edits, code_tests
from evals.slices.catalogue import Catalogue
from evals.slices.code_edits import EDIT_SLICES, Edit
from evals.slices.code_tests import MODULES, edit_of, passes, slice_in
from evals.slices.tested import intervals
from evals.slices.tested.calls import CALLS
from tests.examples import examples

RUN = code_tests._RUN.format(name="results")


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def results(text: str, calls: list[tuple[str, Any]], file: str = "tested") -> list[Any]:
    """What a module's functions return, as the sandbox's programs tell it; the text is one of ours."""
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), scope)
    exec(compile(RUN, "run", "exec"), scope)
    return list(json.loads(scope["results"](calls)))


def calls_of(module: str) -> list[tuple[str, Any]]:
    return [(name, arguments) for name, each in CALLS[module].items() for arguments in each]


def edit_in(module: ModuleType, line: str) -> Edit:
    """The rest of a line behind its first character is gone."""
    text = inspect.getsource(module)
    start = text.index(line)
    return Edit(f"{name_of(module)}.py:f", text, start + 1, start + len(line), is_block=False)


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_function_has_calls_and_every_line_of_it_is_run_by_one(module: ModuleType) -> None:
    text, name = inspect.getsource(module), name_of(module)
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert {node.name for node in functions} == set(CALLS[name])
    run: set[int] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != "tested":
            return None
        if event == "line":
            run.add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        results(text, calls_of(name))
    finally:
        sys.settrace(before)
    statements = {
        node.lineno
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.stmt) and node is not function and node is not function.body[0]
    }
    assert statements
    assert statements <= run, [text.split("\n")[line - 1] for line in sorted(statements - run)]


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_the_calls_of_a_function_differ_in_what_they_return(module: ModuleType) -> None:
    """A function that returns the same whatever it is given, or raises, fails."""
    name = name_of(module)
    told: dict[str, set[str]] = {}
    for (function, _), result in zip(calls_of(name), results(inspect.getsource(module), calls_of(name)), strict=True):
        told.setdefault(function, set()).add(json.dumps(result))
    assert min(map(len, told.values())) > 1, told


@examples(nightly=1_000, gate=60)
@given(seed=st.integers(0, 2**53))
def test_an_edit_is_a_half_typed_line_of_a_function_with_tests(seed: int) -> None:
    edit = edit_of(seed)
    assert edit == edit_of(seed)
    assert edit.completed(edit.wanted) == edit.text
    module, _, function = edit.file.partition(".py:")
    assert function in CALLS[module]
    node = next(
        node for node in ast.parse(edit.text).body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    first, last = (edit.text.count("\n", 0, at) + 1 for at in (edit.cursor, edit.end))
    assert node.lineno < first <= last <= (node.end_lineno or 0)
    assert edit.text[edit.text.rfind("\n", 0, edit.cursor) + 1 : edit.cursor].strip()
    assert len(edit.wanted.partition("\n")[0]) >= 2
    assert ("\n" in edit.wanted) == edit.is_block


def test_edits_are_of_many_functions_lines_and_blocks() -> None:
    edits = [edit_of(seed) for seed in range(400)]
    assert len({edit.file for edit in edits}) == sum(map(len, CALLS.values())) > 40
    assert 0.15 < sum(edit.is_block for edit in edits) / len(edits) < 0.35
    assert len({(edit.file, edit.cursor, edit.end) for edit in edits}) > 300


@pytest.mark.parametrize(
    ("line", "completion", "passed"),
    [
        ("total += last - first + 1", "otal += last - first + 1", 1.0),
        ("total += last - first + 1", "otal = total + (last + 1 - first)", 1.0),  # written otherwise
        ("total += last - first + 1", "otal += last - first", 0.0),
        ("total += last - first + 1", "otal += True * (last - first + 1.0)", 0.0),  # 3.0 is not 3
        ('raise ValueError("there is no interval")', 'aise KeyError("there is no interval")', 0.0),
        ("total += last - first + 1", "otal += last - first + 1\n        exit()", 0.0),
        ("total += last - first + 1", "otal += (last", 0.0),
        ("total += last - first + 1", "", 0.0),
        # it is not asked in the process that judges
        ("total = 0", "otal = 0\n    globals()['_candidate'] = lambda calls: '[]'", 1.0),
    ],
)
def test_what_the_functions_do_is_judged_not_how_it_is_written(
    usual_sandbox: Sandbox, line: str, completion: str, passed: float
) -> None:
    assert passes(usual_sandbox, edit_in(intervals, line), completion) == passed


def test_it_is_a_slice_of_completions_whose_sandbox_is_needed_where_answers_are_scored(
    usual_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = Catalogue(sandbox=usual_sandbox)
    found = catalogue.to_score("code_tests")
    assert (found.name, found.fills_gaps, found.size) == ("code_tests", True, None)
    assert found.version == slice_in(usual_sandbox).version
    assert found.version not in {one.version for one in EDIT_SLICES}
    item = found.item(7)
    assert item.cluster == edit_of(7).file
    assert item.gap is not None
    assert len(item.gap.prefix) <= code_edits.PREFIX_CHARACTERS
    assert (item.score(item.reference), item.score("")) == (1.0, 0.0)

    def refuse(_: Sandbox) -> None:
        raise RuntimeError("no namespaces")

    monkeypatch.setattr(Sandbox, "require", refuse)
    assert catalogue.find("code_tests").item(7).gap == item.gap, "a gateway is asked all the same"
    with pytest.raises(RuntimeError, match="no namespaces"):
        catalogue.to_score("code_tests")
