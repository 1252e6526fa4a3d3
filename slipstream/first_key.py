"""The keys a newcomer gets: made when everything already runs, so that a start that failed has not used them up."""

from __future__ import annotations

import msgspec

from slipstream.settings import Settings


class FirstKey(msgspec.Struct, frozen=True):
    """secret, admin_secret: only on the first start. held: there are keys from earlier starts."""

    secret: str | None
    held: bool
    admin_secret: str | None = None


async def make_first_key(settings: Settings) -> FirstKey:
    """Make the demo tenant with its key, and the first owner with an admin key, if this database has none yet.

    Raises ConfigError when it is out of reach.
    """
    from gateway.admin.audit_log import Actor, Change, record
    from gateway.tenants.api_key import list_keys
    from gateway.tenants.demo import ORGANIZATION, ensure_demo
    from gateway.tenants.operator import EMAIL, ensure_first_owner
    from gateway.tenants.organizations import ensure_organization
    from slipstream.administration import account
    from slipstream.database import connected

    actor = Actor.command(account())
    async with connected(settings) as connection, connection.transaction():
        created = await ensure_demo(connection, settings.pepper)
        owner = await ensure_first_owner(connection, settings.pepper)
        admin_secret = None
        if owner is not None:
            admin_secret = owner.minted.secret
            made = {"email": EMAIL, "role": "owner", "admin_key": owner.minted.display}
            change = Change(
                action="member.create",
                subject_id=str(owner.principal_id),
                organization_id=owner.organization_id,
                after=made,
            )
            await record(connection, actor, change)
        if created is not None:
            organization_id, _ = await ensure_organization(connection, ORGANIZATION)
            change = Change(
                action="key.create",
                subject_id=str(created.key.id),
                organization_id=organization_id,
                after=created.key,
            )
            await record(connection, actor, change)
            return FirstKey(created.secret, held=True, admin_secret=admin_secret)
        return FirstKey(None, held=bool(await list_keys(connection)), admin_secret=admin_secret)
