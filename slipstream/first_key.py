"""The key a newcomer gets: made when everything already runs, so that a start that failed has not used it up."""

from __future__ import annotations

import msgspec

from slipstream.settings import Settings


class FirstKey(msgspec.Struct, frozen=True):
    """secret: only on the first start. held: there are keys from earlier starts."""

    secret: str | None
    held: bool


async def make_first_key(settings: Settings) -> FirstKey:
    """Make the demo tenant and its key if this database has none yet. Raises ConfigError when it is out of reach."""
    from gateway.tenants.api_key import list_keys
    from gateway.tenants.demo import ensure_demo
    from slipstream.database import connected

    async with connected(settings) as connection:
        created = await ensure_demo(connection, settings.pepper)
        if created is not None:
            return FirstKey(created.secret, held=True)
        return FirstKey(None, held=bool(await list_keys(connection)))
