"""The ledger's rows as a test compares them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import asyncpg
import msgspec


async def find(pool: asyncpg.Pool[Any], request_id: str) -> list[SimpleNamespace]:
    """Every attempt of a request, first to last, by column; empty when the ledger has none (yet)."""
    found = await pool.fetch("SELECT * FROM gateway.usage_events WHERE request_id = $1 ORDER BY attempt", request_id)
    return [_row(dict(record)) for record in found]


def _row(columns: dict[str, Any]) -> SimpleNamespace:
    for name in ("organization_id", "project_id", "key_id"):
        columns[name] = str(columns[name])
    columns["phases_ms"] = msgspec.json.decode(columns["phases_ms"])
    return SimpleNamespace(**columns)
