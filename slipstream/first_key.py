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
    from gateway.tenants.api_key import list_keys
    from gateway.tenants.demo import ensure_demo
    from gateway.tenants.operator import ensure_first_owner
    from slipstream.database import connected

    async with connected(settings) as connection:
        created = await ensure_demo(connection, settings.pepper)
        owner = await ensure_first_owner(connection, settings.pepper)
        admin_secret = owner.secret if owner is not None else None
        if created is not None:
            return FirstKey(created.secret, held=True, admin_secret=admin_secret)
        return FirstKey(None, held=bool(await list_keys(connection)), admin_secret=admin_secret)
