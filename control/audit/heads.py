"""Heads of the audit log, noted outside the database: a line of JSON for each, in a file that only grows.

The chain shows that rows were altered, not that all of it was computed anew or that its end was cut off: whoever owns
the tables could do both, for there is no secret in the hashes. A head that was noted elsewhere shows it. (A key would
not: it would have to be where the rows are written, and be known to whoever writes them.)
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
    """The newest row at one moment. rows: how many there were, `id` in a log that is whole."""

    id: int
    hash: str
    at: datetime
    rows: int
    noted_at: datetime


async def current_head(connection: asyncpg.Connection[Any]) -> NotedHead | None:
    """As it is now; None for an empty log. Raises what asyncpg raises."""
    row = await connection.fetchrow(CURRENT)
    return None if row is None else NotedHead(**row, noted_at=datetime.now(UTC))


def note(folder: Path, head: NotedHead) -> None:
    """Append a line, and return when it is on disk. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        # A line that a full disk cut short stays what it is, and does not spoil this one.
        begin = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
        line = begin + msgspec.json.encode(head) + b"\n"
        while line:
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def noted(folder: Path) -> list[NotedHead]:
    """All that were noted, oldest first; none where there is no file. Raises ConfigError for a line that is no head."""
    path, heads = folder / FILE, []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: the noted heads cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            heads.append(msgspec.json.decode(line, type=NotedHead))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(
                f"{path}: line {number} is no head of the audit log; lines are added by the worker and never changed"
            ) from None
    return heads
