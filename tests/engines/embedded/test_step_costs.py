"""Steps are bounded by time: running streams keep their objective while prompts arrive, by a clock that the test
moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.embedded.runner import Ran
from engines.embedded.scheduler import StepPlan
from engines.embedded.step_costs import (
    FIRST_TOKENS,
    MIN_RUNNING,
    MIN_TOKENS,
    StepCosts,
    prompt_budget,
    running_limit,
)
from tests.engines.embedded.tiny import finish, make_engine, request

PAUSE_S = 0.1
SECONDS = st.floats(0.0, 0.5)


@given(SECONDS, SECONDS, st.floats(1e-5, 0.05), st.integers(1, 300))
def test_as_many_prompt_tokens_as_fit(pause_s: float, generation_s: float, token_s: float, most: int) -> None:
    found = prompt_budget(pause_s, generation_s, token_s, most)
    fitting = 0
    while fitting < most and (fitting + 1) * token_s <= max(pause_s - generation_s, 0.0) * (1 + 1e-12):
        fitting += 1
    assert abs(found - min(max(fitting, MIN_TOKENS), most)) <= 1  # a quotient that is whole but for rounding


@pytest.mark.parametrize("token_s", [1e-3, 5e-324])
def test_a_pause_without_a_limit_is_the_largest_step(token_s: float) -> None:
    assert prompt_budget(math.inf, 0.2, token_s, 512) == 512


def test_an_unknown_cost_begins_small() -> None:
    assert prompt_budget(PAUSE_S, 0.0, None, 512) == FIRST_TOKENS
    assert prompt_budget(PAUSE_S, 0.0, None, 8) == 8


@given(SECONDS, SECONDS, st.integers(0, 100), st.integers(1, 64))
def test_no_more_sequences_start_where_generation_takes_too_long(
    pause_s: float, generation_s: float, running: int, most: int
) -> None:
    limit = running_limit(pause_s, generation_s, running, most)
    if generation_s < pause_s:
        assert limit == most
    else:
        assert limit == min(max(running, MIN_RUNNING), most)


@given(st.floats(1e-4, 1e-2), st.floats(1e-5, 1e-2), st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_costs_of_an_exact_machine_are_found(fixed_s: float, token_s: float, sizes: list[int]) -> None:
    costs = StepCosts()
    for size in sizes:
        costs.observe(size, 0, fixed_s)
        assert costs.generation_s(size) == pytest.approx(fixed_s)
        costs.observe(size, 40, fixed_s + 40 * token_s)
    assert costs.token_s == pytest.approx(token_s)


class Machine:
    """A clock that moves by the cost of each step."""

    def __init__(self, fixed_s: float, row_s: float, token_s: float) -> None:
        self.now = 0.0
        self.fixed_s, self.row_s, self.token_s = fixed_s, row_s, token_s
        self.steps: list[tuple[int, int, float]] = []
        """Generating sequences, prompt tokens and seconds of each."""

    def run(self, computed: Callable[..., Ran]) -> Callable[..., Ran]:
        def timed(plan: StepPlan, poll_commands: Callable[[], None] | None = None) -> Ran:
            generating = sum(work.tokens == 1 for work in plan.works)
            tokens = sum(work.tokens for work in plan.works) - generating
            took_s = self.fixed_s + generating * self.row_s + tokens * self.token_s
            self.now += took_s
            self.steps.append((generating, tokens, took_s))
            return computed(plan, poll_commands)

        return timed


@pytest.mark.parametrize("token_s", [1e-5, 5e-4, 2e-3, 8e-3])
def test_streams_keep_their_objective_while_prompts_arrive(
    tiny_model: Path, token_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(0.004, 0.001, token_s)
    engine = make_engine(
        tiny_model, pages=1_000, clock=lambda: machine.now, pause_ms=PAUSE_S * 1e3, max_batch_tokens=256
    )
    monkeypatch.setattr(engine._runner, "run", machine.run(engine._runner.run))
    for number in range(3):
        engine.submit(request(f"stream-{number}", range(10 + number, 14 + number), max_tokens=400))
    for _ in range(8):
        engine.step()
    known = len(machine.steps)
    for number in range(4):
        engine.submit(request(f"prompt-{number}", range(20 + 150 * number, 170 + 150 * number), max_tokens=2))
        for _ in range(30):
            engine.step()
    with_prompts = [step for step in machine.steps[known:] if step[0] and step[1]]
    assert sum(tokens for _, tokens, _ in with_prompts) >= 3 * 150
    # the first chunk was a guess
    for generating, tokens, took_s in with_prompts[1:]:
        assert took_s <= PAUSE_S * 1.05 or tokens <= MIN_TOKENS, (generating, tokens, took_s)
    if token_s <= 5e-4:  # and they are no smaller than they must be
        assert max(tokens for _, tokens, _ in with_prompts) >= 140


def test_slow_steps_do_not_lift_the_limit_of_running_sequences(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(2 * PAUSE_S, 0.0, 0.0)
    engine = make_engine(tiny_model, clock=lambda: machine.now, pause_ms=PAUSE_S * 1e3, max_running=2)
    monkeypatch.setattr(engine._runner, "run", machine.run(engine._runner.run))
    for number in range(5):
        engine.submit(request(f"r{number}", range(10 + number, 14 + number), max_tokens=8))
    running = []
    while engine.busy:
        engine.step()
        running.append(len(engine.scheduler.running))
    assert max(running) == 2


def test_prompts_are_computed_if_streams_may_pause_forever(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, pause_ms=math.inf)
    engine.submit(request("stream", range(5, 30), max_tokens=40))
    engine.step()
    prompt = request("prompt", range(40, 90), max_tokens=2)
    assert {rid for rid, _ in finish(engine, prompt)} == {"stream", "prompt"}
