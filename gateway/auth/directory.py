"""Reads keys from the database, many in one query, each with its limits and priorities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from contracts.adapter import Adapter
from contracts.generation import Caller, Tier
from gateway.auth.key_record import KeyRecord, Reason, Refusal
from gateway.auth.scopes import Scope
from gateway.limits.levels import Levels
from gateway.limits.priorities import Priorities
from gateway.limits.priority_store import priorities_of_all
from gateway.limits.store import levels_of_all

# The previous secret of a rotated key is valid until the end of the overlap. UNION instead of OR makes each half one
# search of an index for all hashes.
LOOKUP = """
SELECT asked, key.id, project_id, organization_id, revoked_at IS NOT NULL AS revoked,
       projects.disabled_at IS NOT NULL AS project_disabled,
       organizations.disabled_at IS NOT NULL AS organization_disabled,
       extract(epoch FROM opens_until)::float8 AS expires_at, scopes, models, tiers,
       store_prompts, allow_reviews, internal
  FROM (SELECT hash AS asked, expires_at AS opens_until, id, project_id, revoked_at, scopes
          FROM gateway.api_keys WHERE hash = ANY ($1::bytea[])
         UNION ALL
        SELECT previous_hash, least(expires_at, previous_expires_at), id, project_id, revoked_at, scopes
          FROM gateway.api_keys WHERE previous_hash = ANY ($1::bytea[])) AS key
  JOIN gateway.projects ON projects.id = project_id
  JOIN gateway.organizations ON organizations.id = organization_id
"""

ADAPTERS = """
SELECT id, organization_id, project_id, model, name, path FROM gateway.adapters
 WHERE organization_id = ANY ($1::uuid[]) ORDER BY project_id IS NULL, model, name
"""

ValueT = TypeVar("ValueT")


async def read_keys(connection: asyncpg.Connection[Any], hashes: Sequence[bytes]) -> dict[bytes, KeyRecord | Refusal]:
    """Records by hash; a hash that was never issued gets a Refusal. Raises asyncpg's errors.

    This takes several reads. A change between them is announced, and the key is then read again.
    """
    rows = await connection.fetch(LOOKUP, list(hashes))
    answers: dict[bytes, KeyRecord | Refusal] = {each: Refusal(Reason.UNKNOWN) for each in hashes}
    if rows:
        subjects = [(row["organization_id"], row["project_id"], row["id"]) for row in rows]
        adapters = await _adapters_of(connection, {row["organization_id"] for row in rows})
        levels_of_each = await levels_of_all(connection, subjects)
        priorities_of_each = await priorities_of_all(connection, subjects)
        for row, levels, priorities in zip(rows, levels_of_each, priorities_of_each, strict=True):
            answers[row["asked"]] = _answer(row, levels, priorities, adapters)
    return answers


async def _adapters_of(
    connection: asyncpg.Connection[Any], organizations: set[UUID]
) -> dict[UUID, list[asyncpg.Record]]:
    """Adapters by organization; those of projects come first."""
    found: dict[UUID, list[asyncpg.Record]] = {}
    for row in await connection.fetch(ADAPTERS, list(organizations)):
        found.setdefault(row["organization_id"], []).append(row)
    return found


def _adapters(row: asyncpg.Record, by_organization: dict[UUID, list[asyncpg.Record]]) -> tuple[Adapter, ...]:
    return tuple(
        Adapter(str(adapter["id"]), adapter["name"], adapter["model"], adapter["path"])
        for adapter in by_organization.get(row["organization_id"], ())
        if adapter["project_id"] in (None, row["project_id"])
    )


def _answer(
    row: asyncpg.Record, levels: Levels, priorities: Priorities, adapters: dict[UUID, list[asyncpg.Record]]
) -> KeyRecord | Refusal:
    caller = Caller(
        organization_id=str(row["organization_id"]), project_id=str(row["project_id"]), key_id=str(row["id"])
    )
    if row["revoked"]:
        return Refusal(Reason.REVOKED, caller)
    if row["organization_disabled"]:
        return Refusal(Reason.ORGANIZATION_DISABLED, caller)
    if row["project_disabled"]:
        return Refusal(Reason.PROJECT_DISABLED, caller)
    return KeyRecord(
        caller=caller,
        levels=levels,
        expires_at=row["expires_at"],
        scopes=_set(row["scopes"], Scope),
        models=_set(row["models"], str),
        tiers=_set(row["tiers"], Tier),
        store_prompts=row["store_prompts"],
        allow_reviews=row["allow_reviews"],
        internal=row["internal"],
        adapters=_adapters(row, adapters),
        priorities=priorities,
    )


def _set(values: list[str] | None, kind: Callable[[str], ValueT]) -> frozenset[ValueT] | None:
    return None if values is None else frozenset(map(kind, values))
