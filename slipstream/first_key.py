"""The first keys of a deployment and the link to its console. They are made once everything runs, so that a failed
start does not use them up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slipstream.database import connected
from slipstream.settings import Settings

if TYPE_CHECKING:
    from control.api.call import AdminCall

COMMAND = "slipstream up"
ORGANIZATION, PROJECT, KEY = "demo", "default", "demo"
OWNER = {"email": "owner@localhost", "name": "first owner", "role": "owner"}
OWNER_KEY = "first"

# The results of the functions below, by the same rules. Loading them takes longer than the rest of a later start.
FOUND = """
SELECT EXISTS (
           SELECT FROM gateway.projects
            WHERE name = $2 AND organization_id = (
                      SELECT id FROM gateway.organizations WHERE name = $1 ORDER BY created_at, id LIMIT 1
                  )
       ) AS demo,
       EXISTS (
           SELECT FROM gateway.principals JOIN gateway.organizations ON organizations.id = organization_id
            WHERE operator
       ) AS owner,
       EXISTS (SELECT FROM gateway.console_accounts)
           OR EXISTS (SELECT FROM gateway.console_links WHERE kind = 'first' AND expires_at > now()) AS welcomed,
       EXISTS (SELECT FROM gateway.api_keys) AS held
"""


class FirstKey(msgspec.Struct, frozen=True):
    """secret, admin_secret: only on the first start. held: whether the database has keys. console_link: opens the
    console once, while it has no account and no unused link; only the path if the deployment does not know its own
    address."""

    secret: str | None
    held: bool
    admin_secret: str | None = None
    console_link: str | None = None


async def make_first_key(settings: Settings) -> FirstKey:
    """Make the demo tenant with its key, and the first owner with an admin key, if this database has none yet.

    Safe in several processes at once: one of them gets the secrets. Raises ConfigError if the database is unreachable.
    """
    async with connected(settings) as connection:
        found = await connection.fetchrow(FOUND, ORGANIZATION, PROJECT)
    if found["demo"] and found["owner"] and (found["welcomed"] or not settings.gateway.console.enabled):
        return FirstKey(None, held=found["held"])

    from control.console.console_links import first_link
    from slipstream.administration import administration

    async with administration(settings, COMMAND) as call:
        secret = await _demo_key(call)
        admin_secret = await _owner_key(call)
        link = await first_link(call, again=False) if settings.gateway.console.enabled else None
        held = await call.connection.fetchval("SELECT EXISTS (SELECT FROM gateway.api_keys)")
    return FirstKey(secret, held=held, admin_secret=admin_secret, console_link=None if link is None else link.url)


async def _demo_key(call: AdminCall) -> str | None:
    """The demo key's secret, the first time only, even if the key was deleted since."""
    from control.tenants.keys import NewKey, create_key
    from slipstream.tenants import ensure_organization, ensure_project, organizations_named

    # The oldest one with that name: a later tenant of the same name neither gets the key nor blocks the next start.
    named = await organizations_named(call.connection, ORGANIZATION)
    organization_id = named[0] if named else (await ensure_organization(call, ORGANIZATION))[0]
    project_id, made = await ensure_project(call, organization_id, PROJECT)
    if not made:
        return None
    return (await create_key(call, project_id, NewKey(name=KEY))).secret


async def _owner_key(call: AdminCall) -> str | None:
    """The owner's secret, the first time only: while the operating organization has no principal."""
    from control.tenants.admin_keys import NewAdminKey, create_admin_key
    from control.tenants.members import NewMember, create_member
    from slipstream.administration import converted
    from slipstream.tenants import ensure_operating_organization

    organization_id = await ensure_operating_organization(call)
    if await call.connection.fetchval(
        "SELECT EXISTS (SELECT FROM gateway.principals WHERE organization_id = $1)", organization_id
    ):
        return None
    owner = await create_member(call, organization_id, converted({**OWNER}, NewMember))
    body = NewAdminKey(principal_id=owner.id, name=OWNER_KEY)
    return (await create_admin_key(call, organization_id, body)).secret
