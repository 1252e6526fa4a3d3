"""The clairvoyant bound is what exhaustive search finds, and no policy beats it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest

from tools.simulator.arrival import Arrival, block_id
from tools.simulator.bound import clairvoyant_hit_rate
from tools.simulator.competitors import competitor, rules
from tools.simulator.config import SimulatorConfig
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.simulation import Simulation
from tools.simulator.summary import summarize


def best_by_search(requests: Sequence[tuple[int, ...]], capacity: int) -> int:
    """Most hits any eviction could give: after each request keep any `capacity` blocks, whole prefixes or not."""

    @cache
    def best(index: int, held: frozenset[int]) -> int:
        if index == len(requests):
            return 0
        hits = 0
        for block in requests[index]:
            if block not in held:
                break
            hits += 1
        return hits + max(best(index + 1, kept) for kept in _subsets(held | set(requests[index]), capacity))

    return best(0, frozenset())


def _subsets(blocks: frozenset[int], size: int) -> list[frozenset[int]]:
    found = {blocks}
    while any(len(each) > size for each in found):
        found = {each - {block} for each in found for block in each} if len(next(iter(found))) > size else found
    return list(found)


@pytest.mark.parametrize("seed", range(12))
def test_it_equals_exhaustive_search(seed: int) -> None:
    source = random.Random(seed)
    requests = []
    for _ in range(7):
        family = source.randrange(3)
        requests.append(tuple(10 * family + depth for depth in range(source.randint(1, 3))))
    arrivals = [
        Arrival(float(at), 10 * len(blocks) + 1, 1, tuple(block_id(block) for block in blocks))
        for at, blocks in enumerate(requests)
    ]
    tokens = sum(arrival.prompt_tokens for arrival in arrivals)
    for capacity in (3, 4, 6):
        found = clairvoyant_hit_rate(arrivals, capacity * 10, 10)
        assert found == pytest.approx(10 * best_by_search(requests, capacity) / tokens)


@pytest.mark.parametrize("policy", ["ours", "core:least_load", "core:smg", "core:most_cached", *rules()])
def test_no_policy_beats_it(policy: str) -> None:
    config = SimulatorConfig(replicas=2, max_concurrency=1_000)
    arrivals = sessions(6.0, 60.0, 1, SessionsConfig(tenants=4, block_tokens=512))
    # answers are cached by engines and not by the bound, which knows prompts only
    arrivals = [Arrival(each.at_s, each.prompt_tokens, each.output_tokens, each.blocks) for each in arrivals]
    simulation = Simulation(config, competitor(policy, config), arrivals)
    reached = summarize(config, simulation.run(), simulation.replicas).hit_rate
    capacity = sum(replica.engine.capacity_tokens for replica in simulation.replicas)
    assert 0 < reached <= clairvoyant_hit_rate(arrivals, capacity, 512, config.warm_up)
