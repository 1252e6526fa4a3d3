"""What the benchmark of replayed workloads measures is what the simulator measures, and its prompts share what they
should."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.workload_replay import SHAPE as LOAD
from benchmarks.workload_replay import figures
from contracts.prefix import BLOCK_TOKENS, chain_tokens, root
from engines.performance.engine import EngineLimits
from tests.prefix_chains import shared_blocks
from tools.bench.answer import Answer
from tools.bench.prompts import Prompts
from tools.simulator.competitors import competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.simulation import Simulation
from tools.simulator.summary import summarize

SHAPE = SessionsConfig(tenants=2, system_tokens=(200, 600), turns=(2, 3), pause_s=2.0, block_tokens=BLOCK_TOKENS)


def test_prompts_share_blocks_where_the_arrivals_do_and_nothing_with_another_run() -> None:
    load = sessions(1.0, 30.0, 1, SHAPE)
    assert len(load) > 10
    first, second = (Prompts(seed, range(300, 2_000), BLOCK_TOKENS) for seed in (1, 2))
    chains = [chain_tokens(root("m"), first.of(number, arrival)) for number, arrival in enumerate(load)]
    for (one, chain), (other, other_chain) in itertools.combinations(zip(load, chains, strict=True), 2):
        equal = [left == right for left, right in zip(one.blocks, other.blocks, strict=False)]
        assert shared_blocks(chain, other_chain) == (equal.index(False) if False in equal else len(equal))
    again = [chain_tokens(root("m"), second.of(number, arrival)) for number, arrival in enumerate(load)]
    assert not any(shared_blocks(chain, other) for chain, other in zip(chains, again, strict=True))
    assert [len(first.of(number, arrival)) for number, arrival in enumerate(load)] == [a.prompt_tokens for a in load]


def test_a_live_runs_figures_are_a_simulations() -> None:
    """The same answers, given to both: what ends as predicted counts as predicted."""
    load = sessions(14.0, 20.0, 2, LOAD)
    config = SimulatorConfig(node="70b-fp8-2xh100", replicas=2, limits=EngineLimits(block_tokens=BLOCK_TOKENS))
    simulation = Simulation(config, competitor("ours", config), load)
    outcomes = simulation.run()
    wanted = summarize(config, outcomes, simulation.replicas)
    answers = [
        Answer(
            outcome.arrival,
            outcome.ttft_s,
            None if outcome.ended_at is None else outcome.ended_at - outcome.asked_at,
        )
        for outcome in outcomes
    ]
    found = figures(answers, config.replicas)
    assert wanted.goodput < wanted.offered, "some promise is broken, or nothing is compared"
    for name, value in found.items():
        assert value == pytest.approx(getattr(wanted, name)), name
