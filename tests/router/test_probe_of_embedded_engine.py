"""The default deployment: an embedded engine, one tenant, and the keys that `slipstream router` has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from router.config import RouterConfig
from router.core.avoidance import FAULTS_TO_AVOID
from router.server import RouterServer
from tests.engines.embedded.engine_process import START, TOKEN, Process, healthy
from tests.engines.embedded.tiny import SHIPPED
from tests.router.fakes import TOKENS, Connect, ask
from tests.waiting import eventually

BROKEN = (
    """
from engines.embedded.http.generate import GenerateHandlers
async def broken(*_): raise RuntimeError("a generation")
GenerateHandlers._serve = broken
"""
    + START
)
"""It is healthy, and answers every generation with 500."""


@pytest.fixture
def broken_engine() -> Iterator[Process]:
    process = Process(BROKEN, model=str(SHIPPED / "slipstream-chat"))
    yield process
    process.child.kill()
    process.child.communicate()


@pytest.mark.system
async def test_one_tenants_faults_and_a_probe_take_out_a_broken_embedded_engine(
    broken_engine: Process, connect: Connect
) -> None:
    await healthy(broken_engine)
    pool = Pool("p", "embedded", (Replica("r1", broken_engine.url),))
    model = Model("m", Tier.CHAT, "p", 2_048, engine_model="slipstream-chat")
    keys = EngineKeys(lambda: TOKEN, {}, lambda: "metrics")
    connections = EngineConnections(keys)
    router = RouterServer(RouterConfig(port=0, poll_interval_s=0.02), TOKENS, connections, drivers.get, keys.follow)
    await router.start()
    try:
        client = await connect(router.port)
        client.publish(DesiredState(1, (model,), (pool,)))
        for number in range(FAULTS_TO_AVOID):
            lease = await client.acquire(ask(f"l{number}"))
            client.release(LeaseEnd(lease.lease_id, Finish.ENGINE_ERROR, engine_fault=True))
        replica = router.dispatcher.fleet.replicas["r1"]
        await eventually(lambda: replica.breaker.open)
        assert replica.breaker.reason == "a probe of the router failed"
    finally:
        await router.stop()
        await connections.close()
