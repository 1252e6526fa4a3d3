"""The current standing of the objectives in force, which pages and commands show and a diagnosis explains.

Both use this function, so a diagnosis never denies an alert that another page shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.slo.adoption import in_force, promised_since
from control.slo.standing import LAST_RUN, Standing, counts_of, end_of, for_deployment, standings, window_counts
from storage.rows import fetch, fetchval


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """The current standing. version: of the objectives, 0 before the first; until: end of the windows, None before the
    first roll-up; since: by class whose figures changed, the minute since which they are in force."""

    version: int
    until: datetime | None
    since: Mapping[tuple[Tier, LengthClass], datetime]
    standings: list[Standing]


async def present(
    connection: asyncpg.Connection[Any],
    organization_id: UUID | None,
    *,
    tier: Tier | None = None,
    project_id: UUID | None = None,
    model: str | None = None,
) -> Present:
    """The current standing for an organization, or for the deployment if organization_id is None."""
    version, objectives = await in_force(connection)
    since = await promised_since(connection)
    last_run = await fetchval(connection, LAST_RUN)
    counts, until = {}, None
    if last_run is not None:
        until = end_of(last_run.astimezone(UTC))
        filters = {"organization_id": organization_id, "project_id": project_id, "model": model, "tier": tier}
        counts = counts_of(await fetch(connection, window_counts(until, since, **filters)))
        if organization_id is None:
            counts = for_deployment(counts)
    wanted = [each for each in objectives if tier in (None, each.tier)]
    return Present(version=version, until=until, since=since, standings=standings(wanted, counts))
