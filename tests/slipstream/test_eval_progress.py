"""What who waits for a run of evals or a comparison is told meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec

from control.evals.evals import RunInFull
from control.evals.store import Comparison, Rule, Run, SliceProgress
from slipstream.eval_progress import SILENT_S, Telling, plan_of, progress_of
from storage.tables.evals import Status

AT = datetime(2026, 11, 22, tzinfo=UTC)


def run(items: int = 100, **answered: int) -> RunInFull:
    """answered: by slice, of `items` each."""
    slices = [
        SliceProgress(
            slice=name,
            slice_version=None,
            about=None,
            goal=None,
            items=items,
            answered=count,
            score_sum=0.0,
            refused_items=0,
        )
        for name, count in answered.items()
    ]
    found = Run(
        id=UUID(int=1), model="m", pool=None, arm=None, comparison_id=None, engine_model=None, status=Status.RUNNING,
        first_seed=0, night=None, items=items * len(slices), answered=sum(answered.values()), error=None,
        created_at=AT, started_at=AT, ended_at=None,
    )  # fmt: skip
    return RunInFull(run=found, slices=slices)


def comparison(budget_items: int = 1_600) -> Comparison:
    return Comparison(
        id=UUID(int=2), model="m", baseline_run=UUID(int=1), candidate_run=UUID(int=3), baseline_pool="one",
        candidate_pool="two", release_id=None, status=Status.RUNNING, rule=Rule(), budget_items=budget_items,
        decision=None, verdict=None, error=None, created_at=AT, started_at=AT, ended_at=None,
    )  # fmt: skip


def test_a_run_says_of_what_its_items_are_and_that_it_does_not_end_early() -> None:
    two = run(facts=100, lists=7)
    assert plan_of(two, [two]) == (
        "100 items of each of 2 slices (facts, lists), 200 in all; all are asked; a run does not end early"
    )
    assert progress_of(two, [two]) == "running: 107 of 200 items answered; lists 7 of 100; 1 of 2 slices done"
    one = run(facts=7)
    assert plan_of(one, [one]) == "100 items of the slice facts; all are asked; a run does not end early"
    assert progress_of(one, [one]) == "running: 7 of 100 items answered"


def test_a_comparison_says_its_budget_and_when_a_slice_ends() -> None:
    runs = [run(200, facts=49, lists=0), run(200, facts=51, lists=0)]
    told = plan_of(comparison(), runs)
    assert told.startswith("both pools are asked the same items of 2 slices (facts, lists): 200 of each at first, then")
    assert told.endswith("up to the budget of 1,600; a slice ends as soon as it is decided")
    assert "150 of each at first," in plan_of(comparison(150), runs)
    assert progress_of(comparison(), runs) == "running: 100 of 800 answers of both pools; facts 100 of 400"


def test_of_many_slices_a_few_are_named() -> None:
    many = run(**{f"s{number}": number for number in range(1, 9)})
    assert "(s1, s2, s3, s4, 4 more)" in plan_of(many, [many])
    assert progress_of(many, [many]).endswith("; s1 1 of 100, s2 2 of 100, s3 3 of 100, s4 4 of 100, 4 more")


def test_without_news_it_is_said_once_that_there_is_none() -> None:
    telling = Telling("the log", "the state")
    begun, further = run(facts=7), run(facts=8)
    assert telling.next(begun, [begun], 1.0) == "running: 7 of 100 items answered"
    assert telling.next(begun, [begun], 0.5 + SILENT_S) is None
    said = f"no item was answered for {SILENT_S:.0f} s; if the gateway refuses, `the log` shows the reason"
    assert telling.next(begun, [begun], 1.0 + SILENT_S) == said
    assert telling.next(begun, [begun], 9.0 * SILENT_S) is None
    assert telling.next(further, [further], 10.0 * SILENT_S) == "running: 8 of 100 items answered"
    assert telling.next(further, [further], 11.0 * SILENT_S) == said


def test_what_nobody_has_begun_is_told_of_otherwise() -> None:
    telling, runs = Telling("the log", "the state"), [run(facts=0), run(facts=0)]
    queued = msgspec.structs.replace(comparison(), status=Status.QUEUED)
    assert telling.next(queued, runs, 0.0) == "queued: 0 of 200 answers of both pools"
    told = telling.next(queued, runs, SILENT_S)
    assert told is not None
    assert told.startswith(f"no worker has started it for {SILENT_S:.0f} s: ")
    assert "`the state` shows whether the queue evals has a worker" in told
