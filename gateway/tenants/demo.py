"""The tenant of a first start, so that there is a key to try before anybody has read how to make one."""

from __future__ import annotations

from typing import Any

import asyncpg

from gateway.tenants.api_key import CreatedKey, create_key
from gateway.tenants.organizations import ensure_organization, ensure_project

ORGANIZATION = "demo"
PROJECT = "default"
KEY = "demo"


async def ensure_demo(connection: asyncpg.Connection[Any], pepper: bytes) -> CreatedKey | None:
    """Create organization, project and key, the first time only; None from then on, whatever became of the key.

    Safe to call from several processes at once: one of them gets the key.
    """
    async with connection.transaction():
        organization_id, _ = await ensure_organization(connection, ORGANIZATION)
        # The second of two processes waits here for the first one's commit: the unique index makes it.
        project_id, created = await ensure_project(connection, organization_id, PROJECT)
        return await create_key(connection, pepper, project_id, KEY) if created else None
