"""Copies with the real router and the real ledger: on an idle replica of the candidate only, and nobody's row."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec

from contracts.desired_state import DesiredState, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.usage import Finish
from gateway.metering.ledger.ledger import Ledger
from gateway.serving.shadow_copies import NO_ID
from tests.gateway.serving.test_shadow_copies import Shadowed, shadowed, split
from tests.gateway.serving.test_with_router import routed
from tests.waiting import eventually


@contextlib.asynccontextmanager
async def split_by_router() -> AsyncIterator[tuple[Shadowed, Any]]:
    """A router that knows the model's pool and its candidate's, each of one replica."""
    async with shadowed() as to, routed(to.platform) as (server, router):
        model = msgspec.structs.replace(split(engine_model="fake"), engine_model="fake")
        pools = tuple(
            Pool(place.pool, place.driver, (Replica(place.replica_id, place.url),), max_concurrency=1)
            for place in to.platform.router.engines
        )
        router.publish(DesiredState(2, (model,), pools))
        await eventually(lambda: server.dispatcher.fleet.version == 2)
        await eventually(lambda: all(replica.usable for replica in server.dispatcher.fleet.replicas.values()))
        yield to, server.dispatcher.fleet


async def test_the_copy_has_a_row_that_is_nobodys_and_on_no_bill(pool: asyncpg.Pool[Any]) -> None:
    async with split_by_router() as (to, fleet):
        await to.copied()
        assert to.outcomes() == {"compared": 1}
        [pair] = to.platform.pairs.kept
        assert (pair.baseline_pool, pair.candidate_pool) == ("pool", "candidate")
        await eventually(lambda: sum(replica.leases for replica in fleet.replicas.values()) == 0)
        _, copy = to.platform.journal.records
        assert await Ledger(pool).insert([copy], "gateway") == 1
        row = await pool.fetchrow("SELECT * FROM gateway.usage_events")
        assert row is not None
        assert (row["endpoint"], row["billed"], row["amount_micro"], row["replica_id"]) == (
            "shadow",
            False,
            0,
            "engine-1",
        )
        assert {str(row[name]) for name in ("organization_id", "project_id", "key_id")} == {NO_ID}


async def test_the_router_grants_no_copy_beside_a_customer() -> None:
    async with split_by_router() as (to, fleet):
        router = to.platform.pipeline._router
        ask = LeaseRequest("held", "held", 0, Tier.CHAT, "m", 1, 1, 0.0, idle_replica="engine-1", pool="candidate")
        lease = await router.acquire(ask)
        assert fleet.replicas[lease.engine.replica_id].leases == 1
        await to.copied()
        router.release(LeaseEnd(lease.lease_id, Finish.COMPLETE))
        assert (to.outcomes(), to.platform.pairs.kept) == ({"busy": 1}, [])
        assert len(to.candidate_engine.records) == 0


async def test_a_copy_takes_no_place_at_the_router() -> None:
    async with split_by_router() as (to, fleet):
        to.script(hang=True)
        await to.serve()
        await to.candidate_asked()
        replica = fleet.replicas["engine-1"]
        assert (replica.leases, replica.free) == (1, True)
        await to.platform.serving.stop()
        await eventually(lambda: replica.leases == 0)
        assert (replica.unwaited, to.outcomes()) == (0, {"superseded": 1})
