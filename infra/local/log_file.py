"""Log files of children: rotated by size when a process starts, and read for messages and `slipstream logs`."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

TAIL_BYTES = 64 * 1024
SUPERVISOR = "supervisor"
"""The logger name of our own notes in a child's log."""
_POSTGRES_ROUTINE = re.compile(r"\[\d+\] (LOG|DETAIL|HINT|STATEMENT|FATAL:  the database system is)\b")


def rotate(path: Path, max_bytes: int, keep: int) -> None:
    """Move `path` to `path.1` (and `.1` to `.2`, up to `keep`) if it has more than `max_bytes`."""
    try:
        if path.stat().st_size <= max_bytes:
            return
    except FileNotFoundError:
        return
    if keep == 0:
        path.unlink()
        return
    for number in range(keep - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            rotated(path, number).rename(rotated(path, number + 1))
    path.rename(rotated(path, 1))


def tail(path: Path, lines: int, size: int | None = None) -> list[str]:
    """The last `lines` lines of the file, or of its first `size` bytes; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2) if size is None else size
            text = file.read(end - file.seek(max(0, end - TAIL_BYTES))).decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines else []


def last_line(path: Path) -> str:
    """The last informative line that the process itself wrote, without our own notes.

    PostgreSQL logs why it ends and then, in many more lines, that it ends: those are skipped. The prefix with which our
    own commands begin an error is removed, because the caller adds it again.
    """
    lines = [message for line in tail(path, 200) if (message := _said(line.strip()))]
    informative = [line for line in lines if not _POSTGRES_ROUTINE.search(line)]
    return (informative or lines or [""])[-1].removeprefix("slipstream: ")


def _said(line: str) -> str:
    """The process's own line, or the message of a JSON line; empty if the line is ours."""
    if line.startswith('{"time":'):
        with contextlib.suppress(ValueError, KeyError):
            record = json.loads(line)
            return "" if record["logger"] == SUPERVISOR else str(record["message"])
    return "" if f" {SUPERVISOR}: " in line else line


def rotated(path: Path, number: int = 1) -> Path:
    """The log's newest rotated file, or an older one."""
    return path.with_name(f"{path.name}.{number}")
