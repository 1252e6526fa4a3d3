"""The judge of one release: its state is a fold over the batches that its steps consumed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg
import msgspec

from contracts.errors import Conflict
from evals.judge import (
    Policy,
    Slices,
    State,
    Thresholds,
    Verdict,
    observe,
    observe_budget,
    observe_slices,
    observe_votes,
    verdict,
)
from gateway.releases.margins import Margins
from gateway.releases.release import Release
from rollout.evidence import Batch, unpacked


class Rules(msgspec.Struct, frozen=True):
    """What a release is judged by, fixed when it began."""

    policy: Policy
    thresholds: Thresholds


def policy_of(release: Release) -> Policy:
    """What its operator asked for, over the judge's own defaults. Raises ValueError."""
    given = msgspec.json.decode(release.margins, type=Margins).given()
    return msgspec.convert({**given, "needs_slices": bool(release.slices)}, Policy)


def rules_of(release: Release) -> Rules:
    """Of a release that has begun."""
    assert release.policy is not None
    assert release.thresholds is not None
    return Rules(
        msgspec.json.decode(release.policy, type=Policy), msgspec.json.decode(release.thresholds, type=Thresholds)
    )


def folded(state: State, rules: Rules, traffic_stage: int, batch: Batch) -> State:
    """The state after a step's batch. traffic_stage: as of `Release.traffic_stage`; below 0 nothing is served yet."""
    if traffic_stage >= 0:
        state = observe(state, rules.policy, rules.thresholds, traffic_stage, batch.observations)
    if batch.slices:
        state = observe_slices(state, Slices(batch.slices))
    if batch.worse or batch.better:
        state = observe_votes(state, worse=batch.worse, better=batch.better)
    return state


def told(state: State, rules: Rules) -> tuple[Verdict, str]:
    """The verdict, and its JSON as a step keeps it: the same state gives the same bytes."""
    found = verdict(state, rules.policy)
    return found, msgspec.json.encode(found).decode()


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A step with a verdict, judged once more."""

    step: int
    stage: int
    requests: int
    decision: str
    same: bool
    """Its verdict is the one that was stored, byte for byte."""


def replay(release: Release, steps: Iterable[asyncpg.Record]) -> tuple[State, list[Replayed]]:
    """Fold a release's steps from the first on, and compare every verdict with the one that was stored.

    steps: as of `store.steps_of`, in order. Raises Conflict where what one consumed was forgotten.
    """
    state = State()
    found: list[Replayed] = []
    if release.policy is None:  # it never began
        return state, found
    rules = rules_of(release)
    for row in steps:
        if row["verdict"] is not None and row["evidence"] is None:
            raise Conflict(
                f"The release {release.id} ended so long ago that what its steps consumed was forgotten "
                "(worker.evidence.step_retention_days); its verdicts are kept, and cannot be replayed."
            )
        state = folded_step(state, rules, release, row)
        if row["verdict"] is not None:
            again, text = told(state, rules)
            found.append(
                Replayed(
                    step=row["step"],
                    stage=row["stage"],
                    requests=row["requests"],
                    decision=again.decision.value,
                    same=text == row["verdict"],
                )
            )
    return state, found


def folded_step(state: State, rules: Rules, release: Release, row: Any) -> State:
    """The state after one row of `release_steps`; one without a verdict consumed nothing."""
    if row["more_units"]:
        return observe_budget(state, rules.policy, row["more_units"])
    if row["verdict"] is None:
        return state
    at = msgspec.structs.replace(release, stage=row["stage"])
    return folded(state, rules, at.traffic_stage, unpacked(row["evidence"]))
