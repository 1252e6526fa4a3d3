"""A core whose replicas take adapters, and requests with one."""

from __future__ import annotations

import msgspec

from contracts.desired_state import DesiredState
from contracts.lease import Lease
from router.core.decisions import Granted
from tests.router.core_driver import Core
from tests.router.fakes import fleet


def adapted_fleet(most: int, *, replicas: tuple[str, ...] = ("r1", "r2"), version: int = 1) -> DesiredState:
    state = fleet(version, replicas=replicas)
    return msgspec.structs.replace(state, pools=(msgspec.structs.replace(state.pools[0], max_adapters=most),))


def lease(core: Core, lease_id: str, adapter: str, organization_id: str = "organization") -> Lease:
    (decision,) = core.ask(lease_id, adapter=adapter, organization_id=organization_id)
    assert isinstance(decision, Granted), decision
    return decision.lease


def served(core: Core, lease_id: str, adapter: str, organization_id: str = "organization") -> Lease:
    granted = lease(core, lease_id, adapter, organization_id)
    core.began(lease_id)
    core.over(lease_id)
    return granted
