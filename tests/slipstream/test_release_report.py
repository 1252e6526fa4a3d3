"""A release as it is printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from control.releases import machine
from control.releases.judge import Policy, State, verdict
from control.releases.judge.state import LatencyCounts, RateCounts
from control.releases.machine import Event
from control.releases.releases import ReleaseDetail, ReleaseStep
from control.slices.startable import SliceRule
from slipstream.release_report import lines_of, percent, row_of, stage_name

BEGAN = datetime(2026, 11, 22, 21, 0, tzinfo=UTC)
STAGES = [0.0, 0.01, 0.125, 1.0]


def detail(state: machine.State = machine.State.RUNNING, share: float = 0.01) -> ReleaseDetail:
    ended_at = BEGAN + timedelta(minutes=5) if state.ended else None
    held = ReleaseStep(
        step=3, at=BEGAN, event=Event.HOLD, stage=1, to_stage=1, state=state, actor="ada", reason="the demo",
        requests=0, sampled=1.0, more_units=0, desired_version=None,
    )  # fmt: skip
    judged = msgspec.to_builtins(verdict(State(stage=0), Policy()))
    return ReleaseDetail(
        id=UUID(int=1), created_at=BEGAN, model="m", candidate_pool="new", baseline_pool="old", state=state, stage=1,
        share=share, stage_began_at=BEGAN, ended_at=ended_at, reason="r", waits_for="", engine_model=None,
        control_pool="", stages=STAGES, shadow_share=0.05, shadow_least=100, slices=["json"], slice_rule=SliceRule(),
        comparison_id=None, margins={}, organization_share=0.5, more_units=0,
        policy=msgspec.to_builtins(Policy()), thresholds={"ttft_ms": [1, 2, 3, 4, 5, 6, 7], "itl_ms": []},
        verdict=judged, consumed=[], moves=[held], warnings=[],
    )  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's width."""
    monkeypatch.setenv("COLUMNS", "120")


def test_shares_are_percents_and_stages_are_counted_from_one() -> None:
    assert [stage_name(STAGES, at) for at in range(4)] == [
        "stage 1 of 4 (shadow)", "stage 2 of 4 (1 %)", "stage 3 of 4 (12.5 %)", "stage 4 of 4 (100 %)",
    ]  # fmt: skip
    assert percent(0.0005) == "0.05 %"


def test_why_it_was_held_what_it_is_judged_by_and_what_is_missing_are_told() -> None:
    said = list(lines_of(detail(), BEGAN + timedelta(minutes=1)))
    assert "stages     shadow, 1 %, 12.5 %, 100 % of the sessions" in said
    assert "history    2026-11-22 21:00:00 UTC  hold by ada: the demo" in said
    assert any(line.startswith("threshold  time to first token of the baseline, ms:") for line in said)
    assert "p99 6.0" in " ".join(said)
    assert "missing    200 more sessions of the candidate (0 of 200 in this stage): none so far" in said
    assert any(line.startswith("harm: that the candidate is worse than tolerated") for line in said)
    assert (
        "next       stage 3 of 4 (12.5 %), when each arm has had 200 sessions in this stage and no test of harm is "
        "reached" in said
    )


def row(said: list[str], *begin: str) -> list[str]:
    """The cells of a test's row, by its first ones."""
    cells = [re.split(r"\s{2,}", line) for line in said]
    [found] = [each for each in cells if each[: len(begin)] == list(begin)]
    return found


def judged(**counts: Any) -> ReleaseDetail:
    return msgspec.structs.replace(detail(), verdict=msgspec.to_builtins(verdict(State(stage=0, **counts), Policy())))


def test_a_test_tells_its_limit_in_milliseconds_and_how_far_it_is() -> None:
    ttft = LatencyCounts((0,) * 7 + (40,), (40,) + (0,) * 7, (40, 4, 0), (0, 4, 0))
    said = list(lines_of(judged(ttft=ttft), BEGAN + timedelta(minutes=1)))
    assert row(said, "harm", "time to first token", "sessions beyond p95 (5.0 ms)")[3:5] == ["40", "0"]
    assert row(said, "harm", "time to first token", "sessions beyond p95 (5.0 ms)")[-1] == "reached"
    assert row(said, "harm", "time to first token", "sessions beyond p99 (6.0 ms)")[-1] == "0 %"
    assert row(said, "harm", "failures", "sessions with a fault")[-2:] == ["10^1.7", "0 %"]
    assert any(
        line.startswith("nearest    time to first token, ") and "it has reached the evidence" in line for line in said
    )


def test_the_harm_that_is_nearest_to_a_rollback_is_named_with_its_part() -> None:
    errors = RateCounts(exposed=400, candidate=6, control=1)
    said = list(lines_of(judged(errors=errors), BEGAN + timedelta(minutes=1)))
    [nearest] = [line for line in said if line.startswith("nearest")]
    part = row(said, "harm", "failures", "sessions with a fault")[-1]
    assert part not in ("0 %", "reached")
    assert nearest == f"nearest    failures, sessions with a fault: at {part} of the evidence for a rollback"


def test_what_is_only_repeated_by_what_is_missing_is_not_told_twice() -> None:
    found = detail()
    assert found.verdict is not None
    once = msgspec.structs.replace(found, waits_for=found.verdict["reason"])
    assert not any(line.startswith("now") for line in lines_of(once, BEGAN))
    other = msgspec.structs.replace(found, waits_for="it is held")
    assert "now        it is held" in list(lines_of(other, BEGAN))


def test_the_shadow_stage_tells_what_it_waits_for_and_how_long_that_takes() -> None:
    found = msgspec.structs.replace(
        detail(), stage=0, share=0.0, waits_for="missing: 75 more copies of requests that both sides answered",
        verdict=msgspec.to_builtins(verdict(State(), Policy())),
    )  # fmt: skip
    said = list(lines_of(found, BEGAN + timedelta(minutes=2)))
    assert (
        "missing    75 more copies of requests that both sides answer (25 of 100): 6 min at this stage's pace so far"
        in said
    )
    assert any(
        line.startswith("next       stage 2 of 4 (1 %), when both sides have answered 100 copies") for line in said
    )


def test_before_all_traffic_every_proof_is_needed() -> None:
    policy = Policy(least_units=(200, 500), needs_slices=True, least_votes=3)
    found = msgspec.structs.replace(
        detail(), stage=2, policy=msgspec.to_builtins(policy),
        verdict=msgspec.to_builtins(verdict(State(stage=1), policy)),
    )  # fmt: skip
    said = " ".join(" ".join(lines_of(found, BEGAN + timedelta(minutes=2))).split())
    assert (
        "next stage 4 of 4 (100 %): new serves m, when each arm has had 500 sessions in this stage, every test of "
        "proof is reached, the slices json have passed, reviewers have cast 3 decisive votes and no test of harm is "
        "reached" in said
    )
    assert "missing a pass of the slices (now: none)" in said
    assert "missing 3 more decisive votes of reviewers (0 of 3)" in said


def test_what_should_be_known_before_its_evidence_is_believed_is_told() -> None:
    told = msgspec.structs.replace(detail(), warnings=["the engines are others"])
    assert "warning    the engines are others" in list(lines_of(told, BEGAN))


def test_one_that_has_ended_tells_when_and_sends_nothing() -> None:
    found = detail(machine.State.ROLLED_BACK, 0.0)
    said = list(lines_of(found, BEGAN))
    assert (
        "state      rolled_back at stage 2 of 4 (1 %), ended 2026-11-22 21:05:00 UTC; 0 % of the sessions go to the "
        "candidate" in said
    )
    assert not any(line.startswith("missing") for line in said)
    assert row_of(found)[5:7] == ("0 %", "2026-11-22 21:05")


@pytest.mark.parametrize("columns", [80, 120])
def test_reasons_are_as_wide_as_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = msgspec.structs.replace(detail(), waits_for="missing: more of it; " * 20)
    said = [line for line in lines_of(found, BEGAN) if line.startswith(("now", "   "))]
    assert len(said) > 3
    assert max(map(len, said)) <= columns
