"""Just enough of PostgreSQL's wire protocol to ask "are you ready?" and to create a database over a unix socket.

Message formats: PostgreSQL documentation, "Frontend/Backend Protocol", version 3.0. Trust authentication only: the
socket lies in a folder that only its owner may enter. Everything else in the project uses a real driver.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

PROTOCOL_3_0 = 196608
SOCKET_NAME = ".s.PGSQL.5432"


class NotReady(Exception):
    """The server is not there, is still starting, or refused; the text is its own."""


async def execute(folder: Path, database: str, statement: str, timeout_s: float = 5.0) -> int:
    """Run one statement as user `slipstream`; returns the number of rows it produced. Raises NotReady."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _execute(folder / SOCKET_NAME, database, statement)
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        raise NotReady(str(error) or type(error).__name__) from None


async def _execute(socket: Path, database: str, statement: str) -> int:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        hello = b"user\0slipstream\0database\0" + database.encode() + b"\0\0"
        writer.write(struct.pack("!ii", len(hello) + 8, PROTOCOL_3_0) + hello)
        await _until_idle(reader)
        text = statement.encode() + b"\0"
        writer.write(b"Q" + struct.pack("!i", len(text) + 4) + text)
        rows = await _until_idle(reader)
        writer.write(b"X" + struct.pack("!i", 4))
        return rows
    finally:
        writer.close()
        await writer.wait_closed()


async def _until_idle(reader: asyncio.StreamReader) -> int:
    """Read messages up to ReadyForQuery; counts data rows. Raises NotReady on an error message."""
    rows = 0
    while True:
        kind, length = struct.unpack("!ci", await reader.readexactly(5))
        body = await reader.readexactly(length - 4)
        if kind == b"D":
            rows += 1
        elif kind == b"E":
            raise NotReady(_sentence(body))
        elif kind == b"R" and body[:4] != b"\0\0\0\0":
            raise NotReady("the server asks for a password")
        elif kind == b"Z":
            return rows


def _sentence(body: bytes) -> str:
    """The human-readable field (`M`) of an error message."""
    for field in body.split(b"\0"):
        if field[:1] == b"M":
            return field[1:].decode(errors="replace")
    return "unknown error"
