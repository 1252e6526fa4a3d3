"""A tenant's keys, changed by SQL over a connection that never breaks."""

from __future__ import annotations

from typing import Any

import asyncpg

from gateway.auth.keys import MintedKey, mint

PEPPER = b"p" * 32


class Tenant:
    """One project and SQL on its keys, over a connection that never breaks."""

    def __init__(self, connection: asyncpg.Connection[Any], project_id: Any) -> None:
        self.connection = connection
        self.project_id = project_id

    async def add(self, minted: MintedKey | None = None, expires_at: float | None = None) -> MintedKey:
        """Insert a key."""
        minted = minted or mint(PEPPER)
        await self.connection.execute(
            "WITH key AS (INSERT INTO gateway.api_keys (project_id, name, hash, display, expires_at)"
            " VALUES ($1, 'k', $2, $3, to_timestamp($4)) RETURNING id)"
            " INSERT INTO gateway.limits (level, subject_id, tokens_per_minute) SELECT 'key', id, 1000 FROM key",
            self.project_id,
            minted.hash,
            minted.display,
            expires_at,
        )
        return minted

    async def revoke(self, minted: MintedKey) -> None:
        """Revoke a key."""
        await self.connection.execute("UPDATE gateway.api_keys SET revoked_at = now() WHERE hash = $1", minted.hash)

    async def restore(self, minted: MintedKey) -> None:
        """Undo a revocation."""
        await self.connection.execute("UPDATE gateway.api_keys SET revoked_at = NULL WHERE hash = $1", minted.hash)

    async def delete(self, minted: MintedKey) -> None:
        """Remove a key's row."""
        await self.connection.execute("DELETE FROM gateway.api_keys WHERE hash = $1", minted.hash)

    async def listeners(self) -> list[int]:
        """Process ids of the server's backends on which a keyring of this database listens."""
        rows = await self.connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'slipstream-keyring-listen'"
            " AND datname = current_database()"
        )
        return [row["pid"] for row in rows]

    async def listening_besides(self, *pids: int) -> int:
        """How many keyrings listen over other backends than these."""
        return len(set(await self.listeners()) - set(pids))
