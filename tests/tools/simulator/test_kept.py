"""What is counted as kept: a refused long prompt is one request, and many tokens."""

from __future__ import annotations

import pytest

from benchmarks.placement import MEASURES, capacity
from tools.simulator.arrival import Arrival
from tools.simulator.config import SimulatorConfig
from tools.simulator.outcome import Outcome
from tools.simulator.replica import ModelledReplica
from tools.simulator.summary import Summary, summarize
from tools.simulator.sweep import Row

CONFIG = SimulatorConfig(replicas=1, warm_up=0.0)


def served(at_s: float, prompt_tokens: int, output_tokens: int, ttft_s: float) -> Outcome:
    """Its tokens come 10 ms apart."""
    first_at = at_s + ttft_s
    ended_at = first_at + 0.01 * (output_tokens - 1)
    arrival = Arrival(at_s, prompt_tokens, output_tokens)
    return Outcome(arrival, asked_at=at_s, granted_at=at_s, first_token_at=first_at, ended_at=ended_at)


def refused(at_s: float, prompt_tokens: int, output_tokens: int) -> Outcome:
    arrival = Arrival(at_s, prompt_tokens, output_tokens)
    return Outcome(arrival, asked_at=at_s, refused_at=at_s, code="overloaded")


def summary(*outcomes: Outcome) -> Summary:
    return summarize(CONFIG, outcomes, [ModelledReplica(0, CONFIG)])


def test_nine_short_ones_and_a_long_one_that_was_refused() -> None:
    run = summary(*(served(float(at), 1_000, 100, 0.1) for at in range(9)), refused(9.0, 91_000, 100))
    row = Row("ours", 1.0, (run,))
    assert row.kept == pytest.approx(0.9)
    assert run.kept_prompt_tokens == pytest.approx(0.09)
    assert run.kept_output_tokens == pytest.approx(0.9)
    assert row.kept_by_length == (1.0, 1.0, 1.0, 0.0)
    assert [measure(row) for measure in MEASURES.values()] == pytest.approx([0.9, 0.09, 0.9, 0.0])


def test_a_late_answer_is_not_kept_in_its_class() -> None:
    run = summary(served(0.0, 1_000, 10, 0.6), served(1.0, 1_000, 10, 0.8), served(2.0, 10_000, 10, 1.9))
    assert [(each.requests, each.kept) for each in run.length_classes] == [(2, 1), (1, 1), (0, 0), (0, 0)]


def test_the_load_up_to_which_nine_in_ten_are_kept_lies_between_the_loads_in_a_straight_line() -> None:
    good = summary(*(served(float(at), 1_000, 100, 0.1) for at in range(10)))
    bad = summary(
        *(served(float(at), 1_000, 100, 0.1) for at in range(8)), *(refused(8.0 + at, 1_000, 100) for at in (0, 1))
    )
    rows = [Row("ours", 2.0, (bad,)), Row("ours", 1.0, (good,))]
    requests = MEASURES["requests"]
    assert capacity(rows, requests) == pytest.approx(1.5)
    assert capacity(rows[1:], requests) == 1.0, "the highest load, where it always is"
