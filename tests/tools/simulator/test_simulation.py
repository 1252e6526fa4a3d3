"""The simulator's own promises: repeatable, nothing lost, and the closed form of its parts where there is one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from engines.performance.catalog import node
from engines.performance.roofline import Roofline
from router.core.decisions import Decision, Granted
from router.core.events import Acquire, Event
from tools.simulator.arrival import Arrival, block_id
from tools.simulator.competitors import competitor, rules
from tools.simulator.config import SimulatorConfig
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.simulation import Simulation, Stuck
from tools.simulator.summary import summarize
from tools.simulator.under_test import RouterUnderTest

SMALL = SimulatorConfig(replicas=3, max_concurrency=32)
POLICIES = [
    "ours", "core:least_load", "core:round_robin", "core:smg", "core:most_cached", "smg:4", "dynamo:2000", *rules(),
]  # fmt: skip


def traffic(seed: int = 1, per_s: float = 12.0, seconds: float = 25.0) -> list[Arrival]:
    return sessions(per_s, seconds, seed, SessionsConfig(tenants=4, block_tokens=512, pause_s=5.0))


def run(policy: str, config: SimulatorConfig = SMALL, arrivals: Sequence[Arrival] | None = None) -> Simulation:
    simulation = Simulation(config, competitor(policy, config), traffic() if arrivals is None else arrivals)
    simulation.run()
    return simulation


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_exactly_once_and_no_token_is_lost(policy: str) -> None:
    # Stuck is raised by the simulation when a request is answered twice or never
    simulation = run(policy)
    served = [outcome for outcome in simulation.outcomes if outcome.ended_at is not None]
    for outcome in simulation.outcomes:
        assert (outcome.ended_at is None) != (outcome.refused_at is None)
    for outcome in served:
        assert outcome.granted_at is not None
        assert outcome.first_token_at is not None
        assert outcome.ended_at is not None
        assert outcome.arrival.at_s <= outcome.granted_at < outcome.first_token_at <= outcome.ended_at
        assert 0 <= outcome.cached_tokens < outcome.arrival.prompt_tokens
    engines = [replica.engine for replica in simulation.replicas]
    computed = sum(outcome.arrival.prompt_tokens - outcome.cached_tokens for outcome in served)
    assert sum(engine.prefilled_tokens for engine in engines) == computed
    generated = sum(outcome.arrival.output_tokens for outcome in served)
    assert sum(engine.decoded_tokens for engine in engines) == generated - len(served)
    assert all(engine.used_tokens == 0 for engine in engines)


@pytest.mark.parametrize("policy", ["core:least_load", "smg"])
def test_a_seed_repeats_and_another_differs(policy: str) -> None:
    first, second = run(policy), run(policy)
    assert first.outcomes == second.outcomes
    assert first.events == second.events
    other = run(policy, msgspec.structs.replace(SMALL, seed=1))
    assert [outcome.ended_at for outcome in other.outcomes] != [outcome.ended_at for outcome in first.outcomes]


def test_all_policies_meet_the_same_machines() -> None:
    speeds = [[replica.speed for replica in run(policy).replicas] for policy in ("smg", "core:round_robin")]
    assert speeds[0] == speeds[1]
    assert len(set(speeds[0])) == SMALL.replicas
    assert all(0.7 <= speed <= 1.3 for speed in speeds[0])


def test_one_request_takes_the_networks_and_the_rooflines_time() -> None:
    config = SimulatorConfig(replicas=1, spread=0.0, step_noise=0.0, network_s=0.004)
    simulation = run("round_robin", config, [Arrival(1.0, 3_000, 50)])
    roofline = Roofline(node(config.node))
    [outcome] = simulation.outcomes
    assert outcome.ttft_s == pytest.approx(0.004 + roofline.prefill_s(3_000))
    assert outcome.tpot_s == pytest.approx(roofline.decode_run_s(49, 1, 3_001) / 49)
    summary = summarize(config, simulation.outcomes, simulation.replicas)
    assert (summary.requests, summary.shed, summary.late) == (1, 0.0, 0.0)


def test_a_slow_replica_is_as_slow_as_it_is_said_to_be() -> None:
    quick = SimulatorConfig(replicas=1, spread=0.0, step_noise=0.0, network_s=0.0)
    slow = msgspec.structs.replace(quick, slow=((0, 0.1),))
    times = [run("round_robin", config, [Arrival(0.0, 4_000, 20)]).outcomes[0].ended_at for config in (quick, slow)]
    assert times[0] is not None
    assert times[1] == pytest.approx(10 * times[0])


def test_warm_prefixes_are_found_by_routers_that_look_for_them() -> None:
    blind, aware = run("round_robin"), run("smg")
    rates = [summarize(SMALL, each.outcomes, each.replicas).hit_rate for each in (blind, aware)]
    assert rates[1] > rates[0] + 0.05


class Deaf:
    """Never answers."""

    def handle(self, event: Event, now: float) -> list[Decision]:
        return []

    def next_wakeup(self) -> float | None:
        return None


class Stutterer:
    """Answers every ask twice."""

    def __init__(self, inner: RouterUnderTest) -> None:
        self.inner = inner

    def handle(self, event: Event, now: float) -> list[Decision]:
        decisions = self.inner.handle(event, now)
        return decisions + [each for each in decisions if isinstance(each, Granted) and isinstance(event, Acquire)]

    def next_wakeup(self) -> float | None:
        return self.inner.next_wakeup()


@pytest.mark.parametrize("wrap", [lambda inner: Deaf(), Stutterer])
def test_a_router_that_loses_or_doubles_requests_is_caught(wrap: type) -> None:
    router = wrap(competitor("round_robin", SMALL))
    with pytest.raises(Stuck):
        Simulation(SMALL, router, [Arrival(0.0, 100, 5, (block_id(1),))]).run()
