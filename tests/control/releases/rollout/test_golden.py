"""Releases that were judged when `golden.bin` was written, judged by today's code."""

from __future__ import annotations

from typing import Any

import pytest

from control.releases.judge import State
from control.releases.machine import Event
from control.releases.rollout.evidence import unpacked
from control.releases.rollout.judging import figures, folded_steps, replay, rules_of
from tests.control.releases.rollout.golden import kept, played

GOLDEN = kept()
ENDS = {
    "promoted": ("promote", Event.ADVANCE, 2),
    "failing": ("roll_back", Event.FAIL, 1),
    "in_shadow": ("roll_back", Event.FAIL, 0),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_verdict_is_the_one_that_was_stored_to_the_bit(name: str) -> None:
    golden = GOLDEN[name]
    _, steps = replay(golden.release(), golden.steps)
    assert [step.step for step in steps if not step.same] == []
    assert (steps[-1].decision, steps[-1].event, steps[-1].stage) == ENDS[name]
    assert len(steps) == len(golden.steps) - 2


@pytest.mark.parametrize("name", GOLDEN)
def test_steps_that_are_folded_together_add_up_to_the_same_state(name: str) -> None:
    golden = GOLDEN[name]
    release, steps = golden.release(), [(step, unpacked(step["evidence"])) for step in golden.steps]
    one_by_one, _ = replay(release, golden.steps)
    assert folded_steps(State(), rules_of(release), release, steps) == one_by_one


@pytest.mark.parametrize("what", ["verdict", "event"])
def test_a_judge_that_says_something_else_is_found(what: str) -> None:
    golden = GOLDEN["failing"]
    rows = [dict(step) for step in golden.steps]
    rows[-1] |= {"verdict": rows[-2]["verdict"]} if what == "verdict" else {"event": Event.OBSERVE.value}
    _, steps = replay(golden.release(), rows)
    assert [step.step for step in steps if not step.same] == [rows[-1]["step"]]


def test_the_script_that_made_them_can_make_them_again() -> None:
    again, before = played(3, copies_worse=0.9).steps, GOLDEN["in_shadow"].steps
    assert [told(step) for step in again] == [told(step) for step in before]


def told(step: dict[str, Any]) -> dict[str, Any] | None:
    return None if step["verdict"] is None else figures(step["verdict"])
