"""API keys as their owners manage them: created, listed, revoked. Gateways hear of each change by themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import InvalidField, NotFound
from gateway.auth.keys import MintedKey, mint
from gateway.limits import store
from gateway.limits.levels import Level, Limits

NAME_CHARACTERS = 200

COLUMNS = f"""
SELECT api_keys.id, organizations.name AS organization, projects.name AS project, api_keys.name, display,
       {", ".join(store.COLUMNS)},
       api_keys.created_at, expires_at, revoked_at, last_used_at
  FROM gateway.api_keys
  JOIN gateway.projects ON projects.id = project_id
  JOIN gateway.organizations ON organizations.id = organization_id
  LEFT JOIN gateway.limits ON level = 'key' AND subject_id = api_keys.id AND tier IS NULL
"""  # noqa: S608  built from constants


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as lists show it: everything but the secret."""

    id: UUID
    organization: str
    project: str
    name: str
    display: str
    limits: Limits
    """Its own, for all tiers."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def state(self, now: datetime) -> str:
        """`active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class CreatedKey(msgspec.Struct, frozen=True):
    """A key on the day it is made: the only time its secret is known."""

    key: ApiKey
    minted: MintedKey

    @property
    def secret(self) -> str:
        """To be shown to the owner, once."""
        return self.minted.secret


async def create_key(
    connection: asyncpg.Connection[Any],
    pepper: bytes,
    project_id: UUID,
    name: str,
    limits: Limits | None = None,
    expires_at: datetime | None = None,
) -> CreatedKey:
    """Make a key for a project. limits: none by default. expires_at: with a time zone.

    Raises InvalidField for a name, limit or time out of range, NotFound when there is no such project.
    """
    limits = limits or Limits()
    store.check(limits)
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise InvalidField(f"name: {name!r} must be 1 to {NAME_CHARACTERS} printable characters", param="name")
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= datetime.now(UTC)):
        raise InvalidField(
            f"expires_at: {expires_at.isoformat()} must be in the future and name its time zone", param="expires_at"
        )
    minted = mint(pepper)
    try:
        key_id = await connection.fetchval(
            "INSERT INTO gateway.api_keys (project_id, name, hash, display, expires_at)"
            " VALUES ($1, $2, $3, $4, $5) RETURNING id",
            project_id,
            name,
            minted.hash,
            minted.display,
            expires_at,
        )
    except asyncpg.ForeignKeyViolationError:
        raise NotFound(f"project {project_id}: there is none with this id") from None
    if limits:
        await store.put_rule(connection, Level.KEY, key_id, None, limits)
    return CreatedKey(await get_key(connection, key_id), minted)


async def get_key(connection: asyncpg.Connection[Any], key_id: UUID) -> ApiKey:
    """One key. Raises NotFound."""
    row = await connection.fetchrow(f"{COLUMNS} WHERE api_keys.id = $1", key_id)
    if row is None:
        raise NotFound(f"key {key_id}: there is none with this id")
    return _key(row)


async def list_keys(connection: asyncpg.Connection[Any], organization: str | None = None) -> list[ApiKey]:
    """All keys, or those of one organization by name; oldest first."""
    rows = await connection.fetch(
        f"{COLUMNS} WHERE $1::text IS NULL OR organizations.name = $1 ORDER BY api_keys.created_at, api_keys.id",
        organization,
    )
    return [_key(row) for row in rows]


async def revoke_key(connection: asyncpg.Connection[Any], which: str) -> ApiKey:
    """Revoke the key with this id, display form or name; for good, and again without effect.

    Raises NotFound when there is none, InvalidField when several keys in force are meant: one of them must then be
    named by its id.
    """
    rows = await connection.fetch(
        f"{COLUMNS} WHERE api_keys.id::text = lower($1) OR display = $1 OR api_keys.name = $1"
        " ORDER BY revoked_at IS NOT NULL, api_keys.created_at",
        which,
    )
    matches = [_key(row) for row in rows]
    if not matches:
        raise NotFound(f"key {which!r}: none has this id, display form or name; `slipstream keys list` shows them")
    live = [key for key in matches if key.revoked_at is None]
    if len(live) > 1:
        ids = ", ".join(str(key.id) for key in live)
        raise InvalidField(f"key {which!r}: {len(live)} keys are called that; name one by its id: {ids}", param="key")
    key = (live or matches)[0]
    await connection.execute(
        "UPDATE gateway.api_keys SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", key.id
    )
    return await get_key(connection, key.id)


def _key(row: asyncpg.Record) -> ApiKey:
    columns = dict(row)
    limits = Limits(**{name: columns.pop(name) for name in store.COLUMNS})
    return ApiKey(limits=limits, **columns)
