"""How many drafts pay, against the same sums written out plainly."""

from __future__ import annotations

import random

import pytest

from engines.performance.catalog import A100, H100, LLAMA_8B, LLAMA_70B
from engines.performance.precision import Precision
from engines.performance.roofline import Node, Roofline
from tools.launch.drafting import BATCHES, MIN_GAIN, Drafting

NODES = (
    Node("70b", H100, 4, LLAMA_70B),
    Node("8b", H100, 1, LLAMA_8B),
    Node("8b-bf16", A100, 1, Precision.BF16.of(LLAMA_8B)),
)


def drafting(node: Node, head_parameters: float = 5e8, context_tokens: float = 2_000) -> Drafting:
    return Drafting(Roofline(node), head_parameters, context_tokens)


def simulated(acceptance: float, steps: int, rounds: int = 200_000) -> float:
    """Tokens a check keeps, drawn one draft after the other."""
    chance = random.Random(7)
    kept = 0
    for _ in range(rounds):
        kept += 1
        for _ in range(steps):
            if chance.random() >= acceptance:
                break
            kept += 1
    return kept / rounds


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_drafts_that_cost_nothing_gain_what_is_kept(steps: int) -> None:
    """At batch 1 the weights are read once, whatever is checked; without a head nothing else is done."""
    gain = drafting(NODES[0], head_parameters=0, context_tokens=1).gain(1, steps, 0.6)
    assert gain == pytest.approx(simulated(0.6, steps), rel=0.02)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_head_costs_and_a_full_card_gains_nothing(node: Node) -> None:
    assert drafting(node).gain(1, 3, 0.7) < drafting(node, head_parameters=0).gain(1, 3, 0.7)
    assert drafting(node).gain(1, 0, 0.7) == 1
    assert drafting(node).gain(4_096, 7, 0.4) < 1


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_schedule_drafts_ever_less_and_only_what_pays(node: Node) -> None:
    made = drafting(node)
    schedule = made.schedule(0.7, 5, 512)
    assert min(schedule) >= 1
    assert schedule[min(schedule)] == 5
    assert list(schedule.values()) == sorted(set(schedule.values()), reverse=True)
    for batch in BATCHES:
        drafts = next((steps for last, steps in schedule.items() if batch <= last), 0)
        if drafts and batch > 1:
            assert made.gain(batch, drafts, 0.7) >= MIN_GAIN


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_an_adaptive_table_begins_at_one_and_holds_no_more_than_was_asked(node: Node) -> None:
    table = drafting(node).adaptive(5, 256)
    assert min(table) == 1
    assert max(table) <= 256
    assert all(steps == sorted(set(steps)) and max(steps) <= 5 for steps in table.values())
