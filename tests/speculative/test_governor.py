"""The governor against a modelled engine: steps that cost and yield what the test says."""

from __future__ import annotations

import pytest

from speculative.config import SpeculationConfig
from speculative.governor import Governor


def pays(governor: Governor, sequences: int) -> bool:
    """Whether guessing is the chosen mode at this batch size, trials aside."""
    return not governor._config.governed or governor._size(sequences).on


def run(governor: Governor, steps: int, *, sequences: int, cost: float, tokens: float) -> int:
    """Steps with drafts. A drafted step takes `cost` times a plain one and emits `tokens` per sequence."""
    drafted_steps = 0
    for step in range(steps):
        noise = 1 + 0.1 * (step % 3 - 1)
        if drafts := governor.drafts(sequences):
            drafted_steps += 1
            governor.observe(sequences, drafts * sequences, round(tokens * sequences), cost * noise)
        else:
            governor.observe(sequences, 0, sequences, noise)
    return drafted_steps


def test_it_keeps_what_pays() -> None:
    governor = Governor(SpeculationConfig(probe_steps=100))
    drafted = run(governor, 1000, sequences=4, cost=1.3, tokens=2.5)
    assert pays(governor, 4)
    assert drafted > 900  # all but the trials of plain steps


def test_it_ends_what_costs_more_than_it_saves() -> None:
    governor = Governor(SpeculationConfig(probe_steps=100))
    drafted = run(governor, 1000, sequences=4, cost=3.0, tokens=2.0)
    assert not pays(governor, 4)
    assert drafted < 100


def test_what_is_dear_is_tried_seldom() -> None:
    governor = Governor(SpeculationConfig(probe_steps=50))
    run(governor, 100, sequences=1, cost=20.0, tokens=2.0)
    drafted = run(governor, 10_000, sequences=1, cost=20.0, tokens=2.0)
    assert drafted > 0
    assert 20 * drafted < 0.06 * (10_000 - drafted), "a twentieth of the time, and a trial's worth"


def test_batch_sizes_are_judged_apart() -> None:
    governor = Governor(SpeculationConfig())
    run(governor, 100, sequences=1, cost=1.1, tokens=3)
    run(governor, 100, sequences=32, cost=3.0, tokens=1.5)
    assert pays(governor, 1)
    assert pays(governor, 2)  # nothing known yet: try
    assert not pays(governor, 32)
    assert not pays(governor, 20)


def test_it_notices_when_acceptance_changes() -> None:
    governor = Governor(SpeculationConfig(probe_steps=50))
    run(governor, 300, sequences=1, cost=1.5, tokens=1)
    assert not pays(governor, 1)
    run(governor, 1000, sequences=1, cost=1.5, tokens=4)
    assert pays(governor, 1)
    run(governor, 300, sequences=1, cost=1.5, tokens=1)
    assert not pays(governor, 1)


@pytest.mark.parametrize("tokens", [2.1, 2.0, 1.9])
def test_near_the_break_even_it_does_not_flap(tokens: float) -> None:
    governor = Governor(SpeculationConfig(probe_steps=20))
    changes, before = 0, True
    for _ in range(200):
        run(governor, 10, sequences=10, cost=2.0, tokens=tokens)
        changes += pays(governor, 10) != before
        before = pays(governor, 10)
    assert changes <= 1


def test_ungoverned_it_never_ends() -> None:
    governor = Governor(SpeculationConfig(governed=False, max_drafts=3))
    run(governor, 100, sequences=1, cost=100.0, tokens=1)
    assert governor.drafts(1) == 3
    assert pays(governor, 1)
