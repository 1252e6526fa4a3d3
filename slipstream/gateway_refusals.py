"""Gateways that cannot serve by the newest version of the fleet."""

from __future__ import annotations

from control.fleet.reports import gateway_reports
from slipstream.database import connected
from slipstream.settings import Settings


async def gateway_refusals(settings: Settings) -> list[str]:
    """A sentence for each running gateway that refuses a version. Raises SlipstreamError if the database is down."""
    async with connected(settings) as connection:
        return [
            f"{each.instance} stays at version {each.version} of the fleet: {each.refusal}"
            for each in await gateway_reports(connection)
            if each.refusal and not each.silent
        ]
