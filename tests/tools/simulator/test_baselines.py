"""The restated rules do what their published text says, on cases small enough to work out by hand."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from contracts.generation import Tier
from contracts.lease import LeaseRequest
from engines.drivers.base import Load
from tools.simulator.arrival import Arrival, block_id
from tools.simulator.baselines.dynamo_cost import DynamoCost, DynamoRejecting
from tools.simulator.baselines.llm_d import LlmD
from tools.simulator.baselines.plain import PlainConsistentHash
from tools.simulator.baselines.rule import Request, Rule
from tools.simulator.baselines.smg_cache_aware import SmgCacheAware, SmgKvEvents
from tools.simulator.competitors import competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.simulation import Simulation

SIZE = 100
AnyRule = TypeVar("AnyRule", bound=Rule)


def prepared(rule: AnyRule, workers: int) -> AnyRule:
    rule.prepare(workers, random.Random(1))
    return rule


def asking(*numbers: int, tail: int = 0) -> Request:
    """A prompt of these blocks and `tail` tokens more."""
    hashes = b"".join(block_id(number) for number in numbers)
    tokens = SIZE * len(numbers) + tail
    ask = LeaseRequest("l", "r", 0, Tier.CHAT, "m", tokens, 10, 1.0, prefix_kind="bytes", prefix_hashes=hashes)
    return Request(ask, SIZE)


def test_smg_goes_to_the_first_bringer_above_its_threshold_and_to_the_least_loaded_below() -> None:
    rule = prepared(SmgCacheAware(), 3)
    assert rule.choose(asking(1, 2, 3), 0.0) == 0
    assert rule.choose(asking(1, 2, 9, 10), 0.0) == 0  # 2 of 4 blocks: 0.5 > 0.3
    assert rule.choose(asking(1, 20, 21, 22), 0.0) == 1  # 0.25: the least loaded
    assert rule.choose(asking(1, 20, 21, 22), 0.0) == 1  # known there now
    # worker 1 holds block 1 as well, but worker 0 brought it first
    assert rule.choose(asking(1, 30), 0.0) == 0
    assert rule.choose(asking(1, 40, 41, tail=34), 0.0) == 2  # 100 of 334 is no more than 0.3


def test_smg_forgets_prefixes_when_loads_are_far_apart_in_both_senses() -> None:
    rule = prepared(SmgCacheAware(), 2)
    rule.choose(asking(1, 2), 0.0)
    rule.in_flight = [165, 100]
    assert rule.choose(asking(1, 2), 0.0) == 1  # 65 > 64 and 165 > 150
    rule.in_flight = [164, 100]
    assert rule.choose(asking(1, 2), 0.0) == 0  # 64 is not more than 64
    rule.in_flight = [300, 210]
    assert rule.choose(asking(1, 2), 0.0) == 0  # 300 is not more than 315


def test_smg_with_events_takes_the_longest_overlap_then_the_least_load() -> None:
    rule = prepared(SmgKvEvents(), 3)
    for worker, blocks in ((0, (1,)), (1, (1, 2)), (2, (1, 2))):
        for block in blocks:
            rule.kv_event(worker, True, block_id(block))
    rule.in_flight = [0, 5, 4]
    assert rule.choose(asking(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 0.0) == 2  # no threshold here
    assert rule.choose(asking(50), 0.0) == 0
    rule.kv_event(2, False, block_id(2))
    assert rule.choose(asking(1, 2), 0.0) == 1


def test_dynamo_weighs_prefill_and_active_blocks_one_to_one() -> None:
    rule = prepared(DynamoCost(), 2)
    for block in (1, 2, 3):
        rule.kv_event(0, True, block_id(block))
    # worker 0: max(4 - 3, 0) + 4 fresh blocks + 1; worker 1: 4 + 4 + 1
    assert rule.choose(asking(1, 2, 3, 4), 0.0) == 0
    # worker 0 now has 100 uncached tokens active and 4 blocks and a tail: (1 + 4 - 3) + 5 + 1 + 1 = 9 = 4 + 4 + 1
    rule.first_token(0, asking(1, 2, 3, 4))  # a stranger to the books changes nothing
    assert rule._prefill_tokens == [100.0, 0.0]
    assert rule._active[0].total() == 4
    assert rule.choose(asking(11, 12, 13, 14), 0.0) == 1  # 5 + 5 + 4 + 1 against 4 + 4 + 1


def test_dynamo_releases_prefill_at_the_first_token_and_blocks_at_the_end() -> None:
    rule = prepared(DynamoCost(), 1)
    first, second = asking(1, 2), asking(1, 2, 3)
    rule.choose(first, 0.0)
    rule.choose(second, 0.0)
    assert rule._prefill_tokens == [500.0]
    assert len(rule._active[0]) == 3  # shared blocks count once
    rule.first_token(0, first)
    assert rule._prefill_tokens == [300.0]
    rule.ended(0, first)
    assert len(rule._active[0]) == 3
    rule.ended(0, second)
    assert (rule._prefill_tokens, len(rule._active[0]), rule._tails, rule.in_flight) == ([0.0], 0, [0], [0])


def test_smg_passes_a_warm_worker_over_that_may_not_have_it() -> None:
    rule = prepared(SmgCacheAware(), 3)
    assert rule.choose(asking(1, 2, 3), 0.0) == 0
    assert rule.choose_among(asking(1, 2, 3), [1, 2], 0.0) == 1
    assert rule.choose_among(asking(1, 2, 3), [0, 2], 0.0) == 0, "it brought the prefix first"


def test_dynamo_rejects_where_every_worker_is_above_a_threshold_and_avoids_those_that_are() -> None:
    rule = prepared(DynamoRejecting(250), 2)
    rule.kv_event(0, True, block_id(1))
    assert rule.choose(asking(1, 2, 3, 4), 0.0) == 0  # warm; 300 tokens to compute from now on
    assert rule.choose(asking(1), 0.0) == 1, "warm, but busy"
    rule.polled(1, Load(used_tokens=86, capacity_tokens=100))
    assert rule.choose(asking(1), 0.0) is None
    rule.polled(1, Load(used_tokens=85, capacity_tokens=100))
    assert rule.choose(asking(1), 0.0) == 1


def test_llm_d_adds_its_scores() -> None:
    rule = prepared(LlmD(), 3)
    for worker, blocks in ((0, (1, 2, 3)), (1, (1,)), (2, (1, 2))):
        for block in blocks:
            rule.kv_event(worker, True, block_id(block))
    # of those that hold any the least gets 0, the most 1: 2 * (1, 0, 0.5), the rest equal
    assert rule.choose(asking(1, 2, 3), 0.0) == 0
    rule.polled(0, Load(waiting=4, used_tokens=50, capacity_tokens=100))
    rule.polled(1, Load(waiting=4))
    # worker 0: 2 + 0.5 + 0 + 0; worker 2: 1 + 1 + 1 + 1
    assert rule.choose(asking(1, 2, 3), 0.0) == 2


def test_a_cap_refuses_who_finds_no_place_and_gives_it_back_when_an_answer_ends() -> None:
    config = SimulatorConfig(replicas=2)
    arrivals = [Arrival(0.0, 1_000, 50), *(Arrival(0.001, 1_000, 500) for _ in range(6)), Arrival(5.0, 1_000, 50)]
    simulation = Simulation(config, competitor("smg:2", config), arrivals)
    simulation.run()
    assert [one.refused_at is None for one in simulation.outcomes] == [True] * 4 + [False] * 3 + [True]
    assert {one.code for one in simulation.outcomes[4:7]} == {"overloaded"}


@pytest.mark.parametrize("rule", [SmgCacheAware, SmgKvEvents, DynamoCost, LlmD, PlainConsistentHash])
def test_books_are_empty_when_everything_has_ended(rule: type[Rule]) -> None:
    source, made = random.Random(2), prepared(rule(), 4)
    live = []
    for _ in range(500):
        request = asking(*range(source.randrange(8)), tail=source.randrange(1, 50))
        worker = made.choose(request, 0.0)
        assert worker is not None
        live.append((worker, request))
        if source.random() < 0.5:
            made.ended(*live.pop(source.randrange(len(live))))
    for worker, request in live:
        made.ended(worker, request)
    assert made.in_flight == [0] * 4
    assert sum(made.processed) == 500
