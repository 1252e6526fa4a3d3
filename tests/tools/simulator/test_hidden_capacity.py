"""What an engine keeps is learnt from what it finds cached, when its report says nothing or too little."""

from __future__ import annotations

import functools

import msgspec
import pytest

from engines.performance.engine import EngineLimits
from router.core.dispatcher import Dispatcher
from tools.simulator.competitors import competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.simulation import Simulation

BLOCK_TOKENS = 64
SETTINGS = SimulatorConfig(replicas=3, limits=EngineLimits(block_tokens=BLOCK_TOKENS, capacity_tokens=120_000))


@functools.cache
def run(reported: float) -> tuple[Simulation, Dispatcher]:
    traffic = sessions(8.0, 120.0, 1, SessionsConfig(tenants=6, block_tokens=BLOCK_TOKENS, pause_s=8.0))
    settings = msgspec.structs.replace(SETTINGS, reported_capacity=reported)
    core = competitor("ours", settings)
    assert isinstance(core, Dispatcher)
    simulation = Simulation(settings, core, traffic)
    simulation.run()
    return simulation, core


def known_to_held(simulation: Simulation, core: Dispatcher) -> float:
    """Blocks the index thinks are held, of those that are."""
    (pool,) = core.fleet.pools.values()
    return sum(pool.index.held.values()) / sum(len(replica.engine.cache) for replica in simulation.replicas)


@pytest.mark.parametrize(("reported", "without_learning"), [(0.0, 17.0), (0.5, 0.5), (2.0, 2.0)])
def test_what_engines_keep_is_learnt_where_they_do_not_say(reported: float, without_learning: float) -> None:
    truth = known_to_held(*run(1.0))
    learnt = known_to_held(*run(reported))
    assert abs(learnt - truth) < 0.5 * abs(without_learning - truth)
