"""Adapters are known with the key: a project's own before its organization's, nobody else's, and no longer than they
are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.auth.keyring import Keyring
from tests.gateway.auth.tenant import Tenant
from tests.waiting import eventually

ADD = """
INSERT INTO gateway.adapters (organization_id, project_id, model, name, path)
SELECT organization_id, CASE WHEN $2 THEN id END, 'm', $3, $4 FROM gateway.projects WHERE id = $1
"""


async def test_they_come_and_go_with_every_keyring(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    minted = await tenant.add()
    keyrings: list[Keyring] = [await keyring_at() for _ in range(2)]
    execute = tenant.connection.execute

    async def paths(keyring: Keyring) -> list[tuple[str, str]]:
        record = keyring.cached(minted.secret) or await keyring.identify(minted.secret)
        return [(one.public_name, one.path) for one in record.adapters]

    async def everywhere(*expected: tuple[str, str]) -> None:
        for keyring in keyrings:

            async def as_expected(keyring: Keyring = keyring) -> bool:
                return await paths(keyring) == list(expected)

            await eventually(as_expected)

    await everywhere()
    await execute(ADD, tenant.project_id, False, "support", "/organizations")
    await everywhere(("m:support", "/organizations"))
    other = await tenant.connection.fetchval(
        "INSERT INTO gateway.projects (organization_id, name)"
        " SELECT organization_id, 'another' FROM gateway.projects WHERE id = $1 RETURNING id",
        tenant.project_id,
    )
    await execute(ADD, other, True, "support", "/another-projects")
    await execute(ADD, tenant.project_id, True, "support", "/own")
    await everywhere(("m:support", "/own"), ("m:support", "/organizations"))
    await execute("DELETE FROM gateway.adapters WHERE path = '/own'")
    await everywhere(("m:support", "/organizations"))
    await execute("DELETE FROM gateway.adapters")
    await everywhere()
