"""Runs a small function a model wrote, on test values, so that a bad one can do no harm.

Two guards: the text may only use a subset of Python (no import, no underscored names, no way to files, frames or the
interpreter), and it runs in a child process with few builtins, an empty environment, limits on CPU time, memory, files
and processes, and no sockets; started by root, as nobody. It is a guard for the small answers of models of one's own,
in training; where models are measured, `confined.py` runs what passes the first guard.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
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
    ast.AsyncWith, ast.Try, ast.TryStar, ast.Raise, ast.Delete, ast.Yield, ast.YieldFrom,
)  # fmt: skip
# `format` reaches attributes by name from inside a string.
_BANNED_ATTRIBUTES = frozenset({"format", "format_map", "mro"})
# Of generators, frames, coroutines, tracebacks and code: a frame leads to the module that runs the answer.
_BANNED_PREFIXES = ("_", "gi_", "f_", "cr_", "ag_", "tb_", "co_")
_REFUSED = "refused: "
_ROOT = Path(__file__).parents[2]

# NPROC is nothing to root; and with NOFILE at 3, closing one descriptor would make room for another.
_RUNNER = """
import builtins, ctypes, json, os, resource, sys
sys.path.insert(0, sys.argv[1])
from evals.sandbox.calls import close_calls
del sys.path[0]
task = json.load(sys.stdin)
try:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*(ctypes.c_ulong(one) for one in (38, 1, 0, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    close_calls(libc)
except OSError as error:
    sys.exit("refused: " + str(error))
resource.setrlimit(resource.RLIMIT_CPU, (task["cpu_s"], task["cpu_s"]))
resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], task["memory_bytes"]))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
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
        if isinstance(node, ast.Attribute) and _is_banned(node.attr):
            return False
        # `case int(name=value)` reads an attribute too.
        if isinstance(node, ast.MatchClass) and any(map(_is_banned, node.kwd_attrs)):
            return False
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return False
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            return False
    return True


def _is_banned(attribute: str) -> bool:
    return attribute.startswith(_BANNED_PREFIXES) or attribute in _BANNED_ATTRIBUTES


def results(code: str, name: str, calls: list[list[Any]]) -> list[Any] | None:
    """What the function of a name returns for each list of arguments; None where it is not allowed, fails or hangs.

    Results must be JSON (tuples become lists). Raises RuntimeError where this machine does not let the process be shut
    in: what could not be run is no wrong answer.
    """
    if not is_harmless(code):
        return None
    task = {
        "code": code, "name": name, "calls": calls, "cpu_s": CPU_S, "memory_bytes": MEMORY_BYTES, "builtins": BUILTINS,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-B", "-c", _RUNNER, str(_ROOT)],
                input=json.dumps(task).encode(), capture_output=True, timeout=WALL_S, cwd=folder, env={}, check=False,
            )  # fmt: skip
            found = json.loads(done.stdout) if done.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None
    said = done.stderr.decode(errors="replace")
    if done.returncode != 0 and said.startswith(_REFUSED):
        raise RuntimeError(f"code of a model cannot be shut in on this machine: {said.removeprefix(_REFUSED).strip()}")
    return found if isinstance(found, list) and len(found) == len(calls) else None


def returns(code: str, name: str, calls: list[list[Any]], wanted: list[Any]) -> bool:
    """Whether the function of a name returns what is wanted for each list of arguments, of the same types."""
    found = results(code, name, calls)
    # == alone would take 1 for True.
    return found is not None and [(type(one), one) for one in found] == [(type(one), one) for one in wanted]
