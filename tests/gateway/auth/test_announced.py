"""Every change of a key's state is announced, so a gateway keeps no outdated part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contracts.errors import RevokedKey, TenantDisabled
from gateway.auth.key_record import KeyRecord, Reason
from gateway.auth.keyring import Keyring
from tests.gateway.auth.tenant import Tenant
from tests.waiting import eventually

OF_PROJECT = " WHERE id = $1"
OF_ORGANIZATION = " WHERE id = (SELECT organization_id FROM gateway.projects WHERE id = $1)"
OF_KEY = " WHERE project_id = $1"

CHANGES: dict[str, str] = {
    "caller": """
        WITH other AS (INSERT INTO gateway.organizations (name) VALUES ('other') RETURNING id)
        UPDATE gateway.projects SET organization_id = other.id FROM other WHERE projects.id = $1""",
    "levels": "INSERT INTO gateway.limits (level, subject_id, max_concurrency) VALUES ('project', $1, 1)",
    "expires_at": "UPDATE gateway.api_keys SET expires_at = now() + interval '1 day'" + OF_KEY,
    "scopes": "UPDATE gateway.api_keys SET scopes = ARRAY['chat']" + OF_KEY,
    "models": "UPDATE gateway.projects SET models = ARRAY['m']" + OF_PROJECT,
    "tiers": "UPDATE gateway.projects SET tiers = ARRAY['chat']" + OF_PROJECT,
    "store_prompts": "UPDATE gateway.organizations SET store_prompts = NOT store_prompts" + OF_ORGANIZATION,
    "allow_reviews": "UPDATE gateway.projects SET allow_reviews = NOT allow_reviews" + OF_PROJECT,
    "adapters": """
        INSERT INTO gateway.adapters (organization_id, project_id, model, name, path)
        SELECT organization_id, id, 'm', 'a', '/a' FROM gateway.projects WHERE id = $1""",
    "priorities": "INSERT INTO gateway.priorities (level, subject_id, share) VALUES ('project', $1, 5)",
    Reason.REVOKED: "UPDATE gateway.api_keys SET revoked_at = now()" + OF_KEY,
    Reason.PROJECT_DISABLED: "UPDATE gateway.projects SET disabled_at = now()" + OF_PROJECT,
    Reason.ORGANIZATION_DISABLED: "UPDATE gateway.organizations SET disabled_at = now()" + OF_ORGANIZATION,
}
"""Statements by the changed field of the record, or by the reason why there is no record. $1: the project."""
NEVER = {"internal", "line", "background", Reason.UNKNOWN}
"""Said when its organization is made, before it has a key; of a request, not of the key; a key that is made is another
test's."""


def test_every_field_has_a_change() -> None:
    assert CHANGES.keys() | NEVER == {*KeyRecord.__struct_fields__, *Reason}


OF_ORGANIZATIONS_LEVELS = """
INSERT INTO gateway.limits (level, subject_id, max_concurrency)
SELECT 'organization', organization_id, 7 FROM gateway.projects WHERE id = $1"""


@pytest.mark.parametrize("what", [*CHANGES, "levels of the organization"])
async def test_what_is_known_with_a_key_is_forgotten_when_it_changes(
    what: str, tenant: Tenant, neighbour: Tenant, keyring_at: Callable[..., Any]
) -> None:
    """And nothing of anybody else's key is."""
    ours, theirs = await tenant.add(), await neighbour.add()
    keyrings: list[Keyring] = [await keyring_at() for _ in range(2)]
    known = [await keyring.identify(ours.secret) for keyring in keyrings]
    remembered = [await keyring.identify(theirs.secret) for keyring in keyrings]
    assert [keyring.cached(ours.secret) for keyring in keyrings] == known
    await tenant.connection.execute(CHANGES.get(what, OF_ORGANIZATIONS_LEVELS), tenant.project_id)
    await eventually(lambda: not any(keyring.cached(ours.secret) for keyring in keyrings))
    for keyring, before in zip(keyrings, known, strict=True):
        if isinstance(what, Reason):
            with pytest.raises(RevokedKey if what is Reason.REVOKED else TenantDisabled):
                await keyring.identify(ours.secret)
        else:
            assert await keyring.identify(ours.secret) != before
    assert [keyring.cached(theirs.secret) for keyring in keyrings] == remembered
