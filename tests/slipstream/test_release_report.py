"""A release as it is printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from evals.judge import Policy, State, verdict
from gateway.admin.resources.releases import ReleaseDetail, ReleaseStep
from gateway.evals.startable import SliceRule
from gateway.releases import machine
from gateway.releases.machine import Event
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
        verdict=judged, consumed=[], moves=[held],
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
    assert "stages     shadow, 1 %, 12.5 %, 100 %" in said
    assert "history    2026-11-22 21:00:00 UTC  hold by ada: the demo" in said
    assert any(line.startswith("threshold  first token, ms") and "p99 6.0" in line for line in said)
    assert "missing    candidate: 0 of 200 sessions, 200 more; none came so far" in said
    assert any(line.startswith("candidate, control: sessions that count against each") for line in said)


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
