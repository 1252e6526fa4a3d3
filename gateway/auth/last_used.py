"""Records when keys were used, and writes it to the database now and then. A crash loses the last minute."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from storage.engine import borrow

WRITE_TIMEOUT_S = 10.0

# In one order and skipping locked rows, so that gateways writing the same keys cannot deadlock. A value that another
# gateway wrote within the interval stays, because people read the column, and a minute does not matter to them. A later
# value is from a clock that was wrong.
WRITE = """
WITH due AS (
    SELECT api_keys.id, seen.at
      FROM unnest($1::uuid[], $2::timestamptz[]) AS seen (id, at)
      JOIN gateway.api_keys USING (id)
     WHERE last_used_at IS NULL OR last_used_at <= seen.at - make_interval(secs => $3)
        OR last_used_at > now() + make_interval(secs => $3)
     ORDER BY api_keys.id
       FOR UPDATE OF api_keys SKIP LOCKED
)
UPDATE gateway.api_keys SET last_used_at = due.at FROM due WHERE api_keys.id = due.id
"""


class LastUsed:
    """The latest use of each key since the last write, in epoch seconds by key id."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.seen: dict[str, float] = {}

    async def write(self, pool: asyncpg.Pool[Any]) -> None:
        """Write the uses since the last call; failed writes are dropped. Raises asyncpg's errors."""
        seen, self.seen = self.seen, {}
        if seen:
            ids = [UUID(key_id) for key_id in seen]
            times = [datetime.fromtimestamp(at, UTC) for at in seen.values()]
            async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(pool) as connection:
                await connection.execute(WRITE, ids, times, self.every_s)
