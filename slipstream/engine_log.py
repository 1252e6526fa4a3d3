"""Finds the one line in the log of SGLang, vLLM, TensorRT-LLM or llama.cpp that shows why the engine ended, or the
progress of its start. It is rarely the last line: one process fails, and others report that they end.
"""

from __future__ import annotations

import re
from pathlib import Path

from contracts.printable import printable
from infra.local.log_file import SUPERVISOR, tail

LINES = 400
"""Lines to read from the log's end: more than a traceback of every process of an engine."""
COLUMNS = 240
_CAUSES = (
    re.compile(r"\b[\w.]*(?:Error|Exception)\b: \S"),
    re.compile(r"\berror\b", re.IGNORECASE),
    re.compile(r"\bfailed\b", re.IGNORECASE),
)
"""Patterns of a cause, the most reliable first."""
_PASSED_OVER = re.compile(
    r"root cause above|received sigquit|exiting due to|initialization failed|leaked \w+ objects|^at |^File "
    r"|^warnings\.warn|^\^+$",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"^(?:\(\w+(?: \w+=\d+)*\) )?(?:(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+\] )?(?:\[[\d :-]+\] )?"
    r"(?:[\d.]+ [A-Z] )?"
)


def failure_line(log: Path) -> str:
    """The line with the reason why the engine ended; empty if it wrote none."""
    lines = _lines(log)
    for kind in _CAUSES:
        found = [line for line in lines if kind.search(line)]
        if found:
            return found[-1]
    return lines[-1] if lines else ""


def last_line(log: Path) -> str:
    """The last informative line; empty if the engine wrote none."""
    lines = _lines(log)
    return lines[-1] if lines else ""


def _lines(log: Path) -> list[str]:
    messages = (
        printable(_PREFIX.sub("", line).strip()[:COLUMNS])
        for line in tail(log, LINES)
        if f" {SUPERVISOR}: " not in line
    )
    return [line for line in messages if line and not _PASSED_OVER.search(line)]
