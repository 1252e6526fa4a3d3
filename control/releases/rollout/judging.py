"""The judge of one release: its state is a fold over the batches that its steps consumed, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import msgspec

from contracts.errors import Conflict
from control.releases.judge import (
    Decision,
    Observation,
    Policy,
    Slices,
    State,
    Thresholds,
    Verdict,
    observe,
    observe_budget,
    observe_copies,
    observe_slices,
    observe_votes,
    verdict,
)
from control.releases.machine import Event
from control.releases.machine import State as ReleaseState
from control.releases.margins import Margins
from control.releases.release import Release
from control.releases.rollout.evidence import Batch, unpacked

EVENTS = {
    Decision.ROLL_BACK: Event.FAIL,
    Decision.PROMOTE: Event.ADVANCE,
    Decision.INCONCLUSIVE: Event.UNDECIDED,
    Decision.WAIT: Event.OBSERVE,
}

NO_TRAFFIC = -1
"""See `folded`."""


class Rules(msgspec.Struct, frozen=True):
    """The rules by which a release is judged, fixed when it began."""

    policy: Policy
    thresholds: Thresholds


def policy_of(release: Release) -> Policy:
    """The operator's options over the judge's defaults. Raises ValueError."""
    options = msgspec.json.decode(release.margins, type=Margins).given()
    return msgspec.convert({**options, "needs_slices": bool(release.slices)}, Policy)


def rules_of(release: Release) -> Rules:
    """The rules of a release that has begun."""
    assert release.policy is not None
    assert release.thresholds is not None
    return Rules(
        msgspec.json.decode(release.policy, type=Policy), msgspec.json.decode(release.thresholds, type=Thresholds)
    )


def folded(state: State, rules: Rules, traffic_stage: int, batch: Batch) -> State:
    """The state after a step's batch. traffic_stage: see `Release.traffic_stage`; below 0 no customer is served yet."""
    if traffic_stage >= 0:
        state = observe(state, rules.policy, rules.thresholds, traffic_stage, batch.observations)
    if batch.slices:
        state = observe_slices(state, Slices(batch.slices))
    if batch.worse or batch.better:
        state = observe_votes(state, worse=batch.worse, better=batch.better)
    if batch.copies:
        state = observe_copies(state, batch.copies)
    return state


def told(state: State, rules: Rules) -> tuple[Verdict, str]:
    """The verdict, and its JSON for the step: the same state gives the same bytes."""
    found = verdict(state, rules.policy)
    return found, msgspec.json.encode(found).decode()


def event_if_running(release: Release, state: State, found: Verdict) -> Event:
    """The event of a verdict for a release at its stage, as if the release were not held."""
    if not release.in_shadow or found.decision is Decision.ROLL_BACK:
        return EVENTS[found.decision]
    # the judge knows no stage without customers
    lacks_slices = bool(release.slices) and state.slices is not Slices.PASS
    return Event.OBSERVE if lacking_copies(release, state) or lacks_slices else Event.ADVANCE


def event_of(release: Release, state: State, found: Verdict) -> Event:
    """The event of a verdict for a release at its place. The same state gives the same event."""
    event = event_if_running(release, state, found)
    if release.state is ReleaseState.HELD and event in (Event.ADVANCE, Event.UNDECIDED):
        event = Event.OBSERVE
    return event


def lacking_copies(release: Release, state: State) -> int:
    """How many more copies of requests both sides must answer before the shadow stage ends."""
    return max(0, release.shadow_least - state.copies.compared)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A step with a verdict, judged again. event: the event of the new verdict."""

    step: int
    stage: int
    requests: int
    decision: str
    event: Event
    same: bool
    """Whether every figure of the new verdict is exactly the stored one, and its event is the step's. Another version
    may word the sentences for people differently."""


def replay(release: Release, steps: Iterable[asyncpg.Record]) -> tuple[State, list[Replayed]]:
    """Fold a release's steps from the first on, and compare every verdict and its event with the stored ones.

    steps: from `store.steps_of`, in order. Raises Conflict if a step's evidence was deleted.
    """
    state, release_state = State(), ReleaseState.WAITING
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
        state = folded_steps(state, rules, release, [(row, unpacked(row["evidence"]))])
        if row["verdict"] is not None:
            again, text = told(state, rules)
            event = event_of(msgspec.structs.replace(release, stage=row["stage"], state=release_state), state, again)
            found.append(
                Replayed(
                    step=row["step"],
                    stage=row["stage"],
                    requests=row["requests"],
                    decision=again.decision.value,
                    event=event,
                    same=figures(text) == figures(row["verdict"]) and event.value == row["event"],
                )
            )
        release_state = ReleaseState(row["state"])
    return state, found


def figures(verdict: str) -> dict[str, Any]:
    """A stored verdict without its sentences for people."""
    decoded: dict[str, Any] = msgspec.json.decode(verdict)
    return {name: value for name, value in decoded.items() if name not in ("reason", "missing")}


def folded_steps(state: State, rules: Rules, release: Release, steps: Sequence[tuple[Any, Batch]]) -> State:
    """The state after rows of `release_steps`, in order, each with its batch; one without a verdict consumed nothing.

    The observations of a stage's adjacent rows are folded together, because each fold copies all sessions so far.
    """
    for (stage, is_grant, is_judged), rows in itertools.groupby(steps, key=_kind):
        if is_grant:
            for row, _ in rows:
                state = observe_budget(state, rules.policy, row["more_units"])
        elif is_judged:
            at = msgspec.structs.replace(release, stage=stage)
            observations: list[Observation] = []
            for _, batch in rows:
                observations += batch.observations
                state = folded(state, rules, NO_TRAFFIC, batch)
            state = folded(state, rules, at.traffic_stage, Batch(tuple(observations)))
    return state


def _kind(step: tuple[Any, Batch]) -> tuple[int, bool, bool]:
    row, _ = step
    return row["stage"], row["more_units"] > 0, row["verdict"] is not None
