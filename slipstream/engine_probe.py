"""Probes engines against the settings and the fleet: readiness, key, served names and context."""

from __future__ import annotations

import os

import msgspec

from contracts.desired_state import DesiredState, Model, Pool
from control.fleet.engine_probe import engine_faults
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from slipstream import fleet_check
from slipstream.settings import Settings

TIMEOUT_S = 10.0


class Asked(msgspec.Struct, frozen=True):
    """A plan of a probe: the engines of these pools, for these models."""

    models: tuple[Model, ...]
    pools: tuple[Pool, ...]

    @property
    def engines(self) -> int:
        """The number of engines to probe."""
        return sum(len(pool.replicas) for pool in self.pools)


def asked_of(settings: Settings, live: DesiredState | None = None) -> Asked:
    """The plan of a probe. live: the running deployment's fleet, including its edits; None if no deployment runs."""
    if live is None:
        return Asked(settings.models, settings.desired_pools)
    return Asked(live.models, live.pools)


async def probe(settings: Settings, asked: Asked | None = None) -> list[str]:
    """The faults of the engines in their order, one sentence each; empty if there are none. asked: None for the engines
    of the settings."""
    asked = asked or asked_of(settings)
    keys = EngineKeys(lambda: fleet_check.known_token(settings), os.environ)
    keys.follow(asked.pools)
    connections = EngineConnections(keys)
    try:
        return await engine_faults(connections, asked.pools, asked.models, TIMEOUT_S)
    finally:
        await connections.close()
