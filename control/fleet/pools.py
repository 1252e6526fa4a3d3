"""Lists and changes pools of engines, their replicas, and each replica's share of the load."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.desired_state import Pool, Replica
from contracts.errors import InvalidField
from control.api.call import AdminCall
from control.api.schemas import Body
from control.fleet import edits
from control.fleet.fleet_edit import EditQuery, FleetEdit, edited, in_force


class FleetPools(msgspec.Struct, frozen=True, kw_only=True):
    """All pools of a version, in order. Fields with their default values are omitted."""

    version: int
    data: list[Pool]


class ReplicaWeight(Body, frozen=True, kw_only=True):
    """The share of load relative to the pool's other replicas. 0 drains the replica: running requests finish."""

    weight: Annotated[float, Meta(ge=0, le=1_000_000)]


async def list_pools(call: AdminCall) -> FleetPools:
    """List the pools and their replicas."""
    state = (await in_force(call)).state
    return FleetPools(version=state.version, data=list(state.pools))


async def get_pool(call: AdminCall, pool_name: str) -> Pool:
    """Get a pool and its replicas."""
    return edits.find_pool((await in_force(call)).state, pool_name)


async def put_pool(call: AdminCall, pool_name: str, body: Pool, query: EditQuery) -> FleetEdit:
    """Add or replace a pool, including its replicas.

    `name` must match the path. The edit neither starts nor stops engines.
    """
    if body.name != pool_name:
        raise InvalidField(f"Invalid value for 'name': it must be {pool_name!r}, as in the path.", param="name")
    return await edited(call, query, "pool.put", lambda state: edits.put_pool(state, body, force=query.force))


async def delete_pool(call: AdminCall, pool_name: str, query: EditQuery) -> FleetEdit:
    """Remove a pool that no model uses.

    Running requests finish. Engines that `slipstream up` started keep running without requests.
    """
    return await edited(call, query, "pool.remove", lambda state: edits.remove_pool(state, pool_name))


async def get_replica(call: AdminCall, pool_name: str, replica_id: str) -> Replica:
    """Get a replica."""
    return edits.find_replica(edits.find_pool((await in_force(call)).state, pool_name), replica_id)


async def put_replica(call: AdminCall, pool_name: str, replica_id: str, body: Replica, query: EditQuery) -> FleetEdit:
    """Add a replica to a pool, or replace it.

    `id` must match the path. The replica gets requests once the router has found it healthy.
    """
    if body.id != replica_id:
        raise InvalidField(f"Invalid value for 'id': it must be {replica_id!r}, as in the path.", param="id")
    return await edited(
        call, query, "replica.put", lambda state: edits.put_replica(state, pool_name, body, force=query.force)
    )


async def weigh_replica(
    call: AdminCall, pool_name: str, replica_id: str, body: ReplicaWeight, query: EditQuery
) -> FleetEdit:
    """Change a replica's share of its pool's load; 0 drains it."""
    return await edited(
        call,
        query,
        "replica.weight",
        lambda state: edits.set_weight(state, pool_name, replica_id, body.weight, force=query.force),
    )


async def delete_replica(call: AdminCall, pool_name: str, replica_id: str, query: EditQuery) -> FleetEdit:
    """Remove a replica. Running requests finish."""
    return await edited(
        call,
        query,
        "replica.remove",
        lambda state: edits.remove_replica(state, pool_name, replica_id, force=query.force),
    )
