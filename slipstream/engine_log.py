"""What the logs of SGLang, vLLM, TensorRT-LLM and llama.cpp say in one line: why an engine ended, and how far one is
that starts. Their last line is seldom it: one process fails, and others report that they end.
"""

from __future__ import annotations

import re
from pathlib import Path

from contracts.printable import printable
from infra.local.log_file import SUPERVISOR, tail

LINES = 400
"""Of the log's end: longer than a traceback of every process of an engine."""
COLUMNS = 240
_CAUSES = (
    re.compile(r"\b[\w.]*(?:Error|Exception)\b: \S"),
    re.compile(r"\berror\b", re.IGNORECASE),
    re.compile(r"\bfailed\b", re.IGNORECASE),
)
"""The surest first."""
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
    """The line that says why the engine ended; empty: it wrote none."""
    lines = _lines(log)
    for kind in _CAUSES:
        found = [line for line in lines if kind.search(line)]
        if found:
            return found[-1]
    return lines[-1] if lines else ""


def last_line(log: Path) -> str:
    """The last line that says something; empty: it wrote none."""
    lines = _lines(log)
    return lines[-1] if lines else ""


def _lines(log: Path) -> list[str]:
    said = (
        printable(_PREFIX.sub("", line).strip()[:COLUMNS])
        for line in tail(log, LINES)
        if f" {SUPERVISOR}: " not in line
    )
    return [line for line in said if line and not _PASSED_OVER.search(line)]
