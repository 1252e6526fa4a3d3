"""Runs one row in its client's own environment: `python child.py ROW.py`, by the variables that `matrix.py` sets.

Only the standard library, because the environment is the client's. A row has a function for each feature that its
client has; one that fails raises. A line of JSON for each comes out: feature, and the reason or null.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_S = 400
"""Of one feature: agents and load tools start slowly on a busy machine."""


class At:
    """Where a client finds the gateway for one feature.

    url: without /v1. key: without limits; limited_key: of a few requests a minute, which are used up when the
    client comes. model, vectors: models' names. forever: a prompt whose answer ends when the client leaves. folder: an
    empty one, for clients that write files.
    """

    def __init__(self, row: str, feature: str) -> None:
        self.url = f"{os.environ['MATRIX_URL']}/{row}/{feature}"
        self.key = os.environ["MATRIX_KEY"]
        self.limited_key = os.environ["MATRIX_LIMITED_KEY"]
        self.model = os.environ["MATRIX_MODEL"]
        self.vectors = os.environ["MATRIX_VECTORS"]
        self.tokenizer = os.environ["MATRIX_TOKENIZER"]
        self.forever = f"count forever for {row}"
        self.folder = Path(os.environ["MATRIX_FOLDER"]) / feature
        self.folder.mkdir(parents=True, exist_ok=True)

    def program(self, *command: str, env: dict[str, str] | None = None, expect: str = "", fails: bool = False) -> str:
        """Output of a program in an empty home. expect: text that must be in it. fails: it must end with an error."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        given = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env={**given, "HOME": str(home), "CI": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S - 10,
        )
        output = ended.stdout + ended.stderr
        if bool(ended.returncode) is not fails:
            raise AssertionError(f"exit code {ended.returncode}: {output[-300:]}")
        if expect not in output:
            raise AssertionError(f"no {expect!r} in: {output[-300:]}")
        return output

    @contextlib.contextmanager
    def raises(self, kind: type[Exception], said: Callable[[Any], object] = lambda error: True) -> Iterator[None]:
        """For code that must end with an error of the kind, about which `said` holds."""
        try:
            yield
        except kind as error:
            if not said(error):
                raise
        else:
            raise AssertionError("no error")


def _late(*_: object) -> None:
    raise TimeoutError(f"not done after {LIMIT_S} s")


def main() -> None:
    """Run all features of the row."""
    path = Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    row: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(row)
    signal.signal(signal.SIGALRM, _late)
    for feature in os.environ["MATRIX_FEATURES"].split():
        function = getattr(row, feature, None)
        if function is None:
            continue
        reason = None
        signal.alarm(LIMIT_S)
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function(At(path.stem, feature)))
            else:
                function(At(path.stem, feature))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:400]
        signal.alarm(0)
        print(json.dumps({"feature": feature, "reason": reason}), flush=True)


if __name__ == "__main__":
    main()
