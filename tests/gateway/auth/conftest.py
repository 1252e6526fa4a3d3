"""A tenant with keys, keyrings over it, and a wire to the database that a test can cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from gateway.auth.config import AuthConfig
from gateway.auth.keyring import Keyring
from storage.engine import connect
from tests.gateway.auth.tenant import PEPPER, Tenant

PATIENT = {"trust_s": 60.0, "lookup_timeout_s": 60.0, "heartbeat_timeout_s": 60.0}
"""A database on a busy machine may be late by more than a customer is kept waiting."""


@pytest.fixture
async def tenant(fresh_postgres_url: str) -> AsyncIterator[Tenant]:
    """A project in a database of the test's own."""
    connection = await connect(fresh_postgres_url)
    organization = await connection.fetchval("INSERT INTO gateway.organizations (name) VALUES ('o') RETURNING id")
    project = await connection.fetchval(
        "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, 'p') RETURNING id", organization
    )
    yield Tenant(connection, project)
    await connection.close()


@pytest.fixture
async def neighbour(tenant: Tenant) -> Tenant:
    """Another organization with a project."""
    project = await tenant.connection.fetchval(
        "WITH made AS (INSERT INTO gateway.organizations (name) VALUES ('neighbour') RETURNING id)"
        " INSERT INTO gateway.projects (organization_id, name) SELECT id, 'p' FROM made RETURNING id"
    )
    return Tenant(tenant.connection, project)


@pytest.fixture
async def keyring_at(fresh_postgres_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Starts keyrings on the test's database, or another, with settings changed by name; stops them after the test."""
    running: list[Keyring] = []

    async def start(url: str = fresh_postgres_url, *, clocks: dict[str, Any] | None = None, **changes: Any) -> Keyring:
        config = msgspec.structs.replace(AuthConfig(), **{**PATIENT, **changes})
        keyring = Keyring(url, PEPPER, config, **(clocks or {}))
        running.append(keyring)
        await keyring.start()
        return keyring

    yield start
    for keyring in running:
        await keyring.stop()
