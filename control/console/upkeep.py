"""Deletes the console's expired data: sessions, links and old attempts."""

from __future__ import annotations

from typing import Any

import asyncpg

from control.console import attempts

SESSIONS = "DELETE FROM gateway.console_sessions WHERE expires_at < now()"
LINKS = "DELETE FROM gateway.console_links WHERE expires_at < now()"


async def forget_console(connection: asyncpg.Connection[Any]) -> None:
    """Delete the expired data, which no longer grants access."""
    await connection.execute(SESSIONS)
    await connection.execute(LINKS)
    await connection.execute(attempts.SWEEP, attempts.FORGOTTEN)
