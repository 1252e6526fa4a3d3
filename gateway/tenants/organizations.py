"""Organizations and their projects. Every name is unique where it is used: asking twice gives the same row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg


async def ensure_organization(connection: asyncpg.Connection[Any], name: str) -> tuple[UUID, bool]:
    """The organization's id, and whether it was created now."""
    created = await connection.fetchval(
        "INSERT INTO gateway.organizations (name) VALUES ($1) ON CONFLICT (name) DO NOTHING RETURNING id", name
    )
    if created is not None:
        return created, True
    found: UUID = await connection.fetchval("SELECT id FROM gateway.organizations WHERE name = $1", name)
    return found, False


async def ensure_project(connection: asyncpg.Connection[Any], organization_id: UUID, name: str) -> tuple[UUID, bool]:
    """The project's id, and whether it was created now."""
    created = await connection.fetchval(
        "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2)"
        " ON CONFLICT (organization_id, name) DO NOTHING RETURNING id",
        organization_id,
        name,
    )
    if created is not None:
        return created, True
    found: UUID = await connection.fetchval(
        "SELECT id FROM gateway.projects WHERE organization_id = $1 AND name = $2", organization_id, name
    )
    return found, False
