"""The operating organization and its first owner, so that there is somebody who can make everybody else."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec

from gateway.auth.keys import ADMIN_PREFIX, MintedKey, mint

ORGANIZATION = "operator"
EMAIL = "owner@localhost"
NAME = "first owner"
KEY = "first"


async def operating_organization(connection: asyncpg.Connection[Any]) -> UUID:
    """The organization whose members run the deployment, made when there is none. In a transaction of the caller's."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('slipstream operator'))")
    found: UUID | None = await connection.fetchval("SELECT id FROM gateway.organizations WHERE operator")
    if found is not None:
        return found
    taken = await connection.fetchval("SELECT true FROM gateway.organizations WHERE name = $1", ORGANIZATION)
    name = f"{ORGANIZATION} {uuid4().hex[:8]}" if taken else ORGANIZATION
    made: UUID = await connection.fetchval(
        "INSERT INTO gateway.organizations (name, operator) VALUES ($1, true) RETURNING id", name
    )
    return made


class FirstOwner(msgspec.Struct, frozen=True):
    """An owner on the day it is made. minted: its admin key, whose secret is known only now."""

    organization_id: UUID
    principal_id: UUID
    minted: MintedKey


async def ensure_first_owner(connection: asyncpg.Connection[Any], pepper: bytes) -> FirstOwner | None:
    """An owner with an admin key, the first time only; None from then on. Safe from several processes at once."""
    async with connection.transaction():
        organization_id = await operating_organization(connection)
        if await connection.fetchval(
            "SELECT true FROM gateway.principals WHERE organization_id = $1 LIMIT 1", organization_id
        ):
            return None
        principal_id = await connection.fetchval(
            "INSERT INTO gateway.principals (organization_id, kind, email, name, role)"
            " VALUES ($1, 'member', $2, $3, 'owner') RETURNING id",
            organization_id,
            EMAIL,
            NAME,
        )
        minted = mint(pepper, ADMIN_PREFIX)
        await connection.execute(
            "INSERT INTO gateway.admin_keys (principal_id, name, hash, display) VALUES ($1, $2, $3, $4)",
            principal_id,
            KEY,
            minted.hash,
            minted.display,
        )
        return FirstOwner(organization_id, principal_id, minted)
