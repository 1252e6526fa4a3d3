"""Reads the gateways' reports on the desired state (gateway/desired/reports.py)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg
import msgspec

SILENT_AFTER_S = 35.0
"""A gateway without a report for three intervals counts as silent."""
FORGOTTEN_AFTER_S = 86_400.0
LIST = """
SELECT instance, version, refused_version, refusal, seen_at, seen_at < now() - make_interval(secs => $1) AS silent
  FROM gateway.fleet_gateways
 WHERE seen_at > now() - make_interval(secs => $2) AND version + coalesce(refused_version, 0) > 0
 ORDER BY instance
"""


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway. version: the version that it applies; 0 for none. refused_version, refusal: a version that it cannot
    apply, and the reason. It retries until it can apply it or a newer one arrives. silent: whether it has not reported
    for a while and is probably gone."""

    instance: str
    version: int
    refused_version: int | None
    refusal: str | None
    seen_at: datetime
    silent: bool


async def gateway_reports(connection: asyncpg.Connection[Any]) -> list[GatewayReport]:
    """Reports of every gateway that ran within a day."""
    rows = await connection.fetch(LIST, SILENT_AFTER_S, FORGOTTEN_AFTER_S)
    return [GatewayReport(**dict(row)) for row in rows]
