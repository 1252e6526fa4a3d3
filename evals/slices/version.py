"""Which edition of a slice something was measured with.

Two runs may be compared only where questions and checks were the same. A version is therefore a digest of everything
that decides them: the source text of the module that makes or reads the questions, of all modules of ours it imports,
and for a file its content. A comment changed is another version: the price of never calling two rulers one.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

_ROOT = "evals"
_DIGITS = 16


def version(module: str, *parts: bytes | str) -> str:
    """The version of a slice: 16 hexadecimal digits. module: its maker or reader. parts: what else decides it."""
    digest = hashlib.sha256(source_digest(module).encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=64)
def source_digest(module: str) -> str:
    """Of the text of a module and of all modules of `evals` that it imports, directly or not."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _imports(name)
    for name in sorted(seen):
        digest.update(f"{name}\0".encode() + _source(name) + b"\0")
    return digest.hexdigest()


def _imports(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(_source(module))):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.module.partition(".")[0] != _ROOT:
            continue
        yield node.module
        # `from evals.slices import facts` imports a module too.
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if _is_module(inner):
                yield inner


def _is_module(name: str) -> bool:
    package, _, last = name.rpartition(".")
    spec = importlib.util.find_spec(package)
    places = (spec.submodule_search_locations if spec else None) or []
    return any(
        (Path(place) / f"{last}.py").exists() or (Path(place) / last / "__init__.py").exists() for place in places
    )


def _source(module: str) -> bytes:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise AssertionError(f"{module}: no source to tell its version by")
    return Path(spec.origin).read_bytes()
