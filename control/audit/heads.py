"""Records heads of the audit log outside the database: a line of JSON for each, in a file that only grows.

The chain shows that rows were altered, but not that all of it was recomputed or that its end was cut off. The tables'
owner could do both, because the hashes contain no secret. A head recorded elsewhere reveals both. (A key would not
help: the process that writes the rows would need it.)
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from contracts.errors import ConfigError

FILE = "heads.jsonl"
CURRENT = """
SELECT id, encode(hash, 'hex') AS hash, at, (SELECT count(*) FROM gateway.audit_log) AS rows
  FROM gateway.audit_log ORDER BY id DESC LIMIT 1
"""


class NotedHead(msgspec.Struct, frozen=True, kw_only=True):
    """The newest row at one moment. rows: number of rows, equal to `id` in an intact log."""

    id: int
    hash: str
    at: datetime
    rows: int
    noted_at: datetime


async def current_head(connection: asyncpg.Connection[Any]) -> NotedHead | None:
    """The current head; None for an empty log. Raises asyncpg's errors."""
    row = await connection.fetchrow(CURRENT)
    return None if row is None else NotedHead(**row, noted_at=datetime.now(UTC))


def note(folder: Path, head: NotedHead) -> None:
    """Append a line, and return when it is on disk. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        # A line that a full disk cut short stays; the newline separates it from this one.
        begin = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
        line = begin + msgspec.json.encode(head) + b"\n"
        while line:
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def noted(folder: Path) -> list[NotedHead]:
    """All recorded heads, oldest first; none without a file. Raises ConfigError for an invalid line."""
    path, heads = folder / FILE, []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: the recorded heads cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            heads.append(msgspec.json.decode(line, type=NotedHead))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(
                f"{path}: line {number} is not a head of the audit log; only the worker adds lines, and lines never "
                "change"
            ) from None
    return heads
