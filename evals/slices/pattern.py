"""Regular expressions of others, matched in a process that is ended when it takes too long.

Python's engine takes exponential time for some patterns and texts, and cannot be stopped from within.
"""

from __future__ import annotations

import json
import subprocess
import sys

LIMIT_S = 120.0
_CPU_S = 2
_PROGRAM = (
    "import json, re, resource, sys\n"
    f"resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S}, {_CPU_S}))\n"
    "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
    "task = json.load(sys.stdin)\n"
    "match = re.fullmatch if task['whole'] else re.search\n"
    "print(match(task['pattern'], task['text']) is not None)\n"
)


def matches(pattern: str, text: str, *, whole: bool) -> bool:
    """Whether a pattern is found in a text, or fits all of it; False when that takes over two seconds of processor."""
    task = json.dumps({"pattern": pattern, "text": text, "whole": whole})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=task.encode(), capture_output=True, timeout=LIMIT_S, env={}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == b"True"
