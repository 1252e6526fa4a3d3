"""Names the transaction that holds the horizon of evidence: the server's oldest one that is still open."""

from __future__ import annotations

from typing import Any

import asyncpg

# A writing transaction has its 32-bit id in one of these two views. Its start is visible to its own role only.
HOLDER = """
SELECT format('process %s (%s, database %s)', pid, coalesce(nullif(application_name, ''), 'without a name'),
              coalesce(datname, 'none')) AS who, xact_start AS began_at
  FROM pg_stat_activity WHERE backend_xid::text::bigint = $1::bigint % 4294967296
 UNION ALL
SELECT format('the prepared transaction %s (database %s)', gid, database), prepared
  FROM pg_prepared_xacts WHERE transaction::text::bigint = $1::bigint % 4294967296
"""


async def holder_of(connection: asyncpg.Connection[Any], horizon: int) -> str:
    """A sentence that names the holder, and its start as far as visible. horizon: see `evidence.horizon`."""
    row = await connection.fetchrow(HOLDER, horizon)
    if row is None:
        return f"transaction {horizon} (pg_stat_activity does not name its process)"
    since = "" if row["began_at"] is None else f", open since {row['began_at']:%Y-%m-%d %H:%M:%S} UTC"
    return f"the transaction of {row['who']}{since}"
