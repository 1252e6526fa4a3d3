"""Reads what gateways reported of the desired state (gateway/desired/reports.py)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg
import msgspec

SILENT_AFTER_S = 35.0
"""A gateway that told nothing for three times is away."""
FORGOTTEN_AFTER_S = 86_400.0
LIST = """
SELECT instance, version, refused_version, refusal, seen_at, seen_at < now() - make_interval(secs => $1) AS silent
  FROM gateway.fleet_gateways
 WHERE seen_at > now() - make_interval(secs => $2) AND version + coalesce(refused_version, 0) > 0
 ORDER BY instance
"""


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway. version: by which it serves; 0: none yet. refused_version, refusal: one it cannot take up, and why;
    it tries again until it can, or a newer one comes. silent: it has told nothing for a while, so it is probably gone.
    """

    instance: str
    version: int
    refused_version: int | None
    refusal: str | None
    seen_at: datetime
    silent: bool


async def gateway_reports(connection: asyncpg.Connection[Any]) -> list[GatewayReport]:
    """Of every gateway that ran within a day."""
    rows = await connection.fetch(LIST, SILENT_AFTER_S, FORGOTTEN_AFTER_S)
    return [GatewayReport(**dict(row)) for row in rows]
