"""Runs a small function a model wrote, on test values, so that a bad one can do no harm.

Two guards: the text may only use a subset of Python (no import, no underscored names, no way to files or to the
interpreter), and it runs in a child process with few builtins, an empty environment and limits on CPU time, memory,
files and processes. It is a guard for the small answers of small models, not a prison for hostile experts.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from typing import Any

CPU_S = 2
MEMORY_BYTES = 256 << 20
WALL_S = 20.0
BUILTINS = (
    "abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float", "int", "isinstance", "len",
    "list", "map", "max", "min", "ord", "pow", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple",
    "zip",
)  # fmt: skip
_BANNED = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.AsyncFunctionDef, ast.Await, ast.With,
    ast.AsyncWith, ast.Try, ast.Raise, ast.Delete, ast.Yield, ast.YieldFrom,
)  # fmt: skip
# `format` reaches attributes by name from inside a string.
_BANNED_ATTRIBUTES = frozenset({"format", "format_map", "mro"})

_RUNNER = """
import json, resource, sys
task = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (task["cpu_s"], task["cpu_s"]))
resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], task["memory_bytes"]))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
import builtins
scope = {"__builtins__": {name: getattr(builtins, name) for name in task["builtins"]}}
exec(compile(task["code"], "answer", "exec"), scope)
results = [scope[task["name"]](*arguments) for arguments in task["calls"]]
sys.stdout.write(json.dumps(results))
"""


def is_harmless(code: str) -> bool:
    """Whether the text is Python of the allowed subset: one or more plain functions and nothing run at import."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if not tree.body or not all(isinstance(node, ast.FunctionDef) and not node.decorator_list for node in tree.body):
        return False
    for node in ast.walk(tree):
        if isinstance(node, _BANNED):
            return False
        if isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr in _BANNED_ATTRIBUTES):
            return False
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return False
    return True


def results(code: str, name: str, calls: list[list[Any]]) -> list[Any] | None:
    """What the function of a name returns for each list of arguments; None where it is not allowed, fails or hangs.

    Results must be JSON (tuples become lists).
    """
    if not is_harmless(code):
        return None
    task = {
        "code": code, "name": name, "calls": calls, "cpu_s": CPU_S, "memory_bytes": MEMORY_BYTES, "builtins": BUILTINS,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _RUNNER],
                input=json.dumps(task).encode(), capture_output=True, timeout=WALL_S, cwd=folder, env={}, check=False,
            )  # fmt: skip
            found = json.loads(done.stdout) if done.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None
    return found if isinstance(found, list) and len(found) == len(calls) else None
