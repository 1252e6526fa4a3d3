"""Policies on the same requests: ours against its naive twin."""

from __future__ import annotations

import heapq
import random

import pytest

from contracts.errors import ConfigError
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from router.config import RouterConfig
from router.core.decisions import Granted
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.policies import registry
from tests.router.fakes import ask, fleet

REPLICAS = ("r1", "r2", "r3", "r4")


def worst_imbalance(policy: str, seed: int) -> int:
    """Largest gap between two replicas' leases while leases of very different lengths come and go."""
    core = Dispatcher(RouterConfig(), registry.create(policy))
    core.handle(GatewayConnected(1, "gateway", "epoch"), 0.0)
    core.handle(StatePublished(fleet(replicas=REPLICAS, max_concurrency=1_000)), 0.0)
    for replica in REPLICAS:
        core.handle(ReplicaPolled(replica, True), 0.0)
    dice = random.Random(seed)
    ends: list[tuple[float, str]] = []
    worst = 0
    for number in range(1_000):
        now = number * 0.01
        while ends and ends[0][0] <= now:
            core.handle(Release(1, LeaseEnd(heapq.heappop(ends)[1], Finish.COMPLETE)), now)
        (decision,) = core.handle(Acquire(1, ask(f"l{number}")), now)
        assert isinstance(decision, Granted)
        heapq.heappush(ends, (now + dice.choice([0.05, 0.05, 0.05, 3.0]), decision.lease.lease_id))
        counts = [core.fleet.replicas[replica].leases for replica in REPLICAS]
        worst = max(worst, max(counts) - min(counts))
    return worst


@pytest.mark.parametrize("seed", range(2))
def test_least_load_keeps_replicas_closer_than_round_robin(seed: int) -> None:
    assert worst_imbalance("least_load", seed) < worst_imbalance("round_robin", seed)


def test_round_robin_takes_turns() -> None:
    core = Dispatcher(RouterConfig(), registry.create("round_robin"))
    core.handle(GatewayConnected(1, "gateway", "epoch"), 0.0)
    core.handle(StatePublished(fleet(replicas=REPLICAS, max_concurrency=100)), 0.0)
    for replica in REPLICAS:
        core.handle(ReplicaPolled(replica, True), 0.0)
    chosen = []
    for number in range(8):
        (decision,) = core.handle(Acquire(1, ask(f"l{number}")), 0.0)
        assert isinstance(decision, Granted)
        chosen.append(decision.lease.engine.replica_id)
    assert chosen[:4] == chosen[4:] == sorted(REPLICAS)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match=r"router\.policy: no policy named 'luck'; known: least_load"):
        registry.create("luck")
