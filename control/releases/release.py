"""A release as its row stores it, and the fleet at each of its stages. Pure."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from contracts.desired_state import Canary, DesiredState, Model
from contracts.errors import Conflict
from control.releases.machine import Place, State

SHADOW = 0.0
"""The share of the shadow stage, in which requests are only copied."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A release, by the columns of `gateway.releases`."""

    id: UUID
    created_at: datetime
    model: str
    candidate_pool: str
    engine_model: str | None
    baseline_pool: str
    control_pool: str
    stages: tuple[float, ...]
    shadow_share: float
    shadow_least: int
    slices: tuple[str, ...]
    slice_rule: str
    margins: str
    policy: str | None
    thresholds: str | None
    state: State
    stage: int
    stage_began_at: datetime
    ended_at: datetime | None
    step: int
    reason: str
    told: str
    watermark: int | None
    organization_share: float | None
    more_units: int
    comparison_id: UUID | None
    desired_version: int | None

    @property
    def place(self) -> Place:
        """The state and the stage."""
        return Place(self.state, self.stage)

    @property
    def share(self) -> float:
        """The candidate's share at its stage."""
        return self.stages[self.stage]

    @property
    def in_shadow(self) -> bool:
        """Whether requests are only copied, and the candidate serves none."""
        return self.share == SHADOW

    @property
    def traffic_stage(self) -> int:
        """The stage in the judge's count, from the first that serves customers; -1 in the shadow stage."""
        return self.stage - (1 if self.stages[0] == SHADOW else 0)

    @property
    def canary(self) -> Canary | None:
        """The release's split, without its secret; None if it splits no traffic."""
        if not self.state.splits:
            return None
        return Canary(
            self.candidate_pool,
            self.share,
            self.engine_model,
            control=not self.in_shadow,
            control_pool=self.control_pool,
            shadow_share=self.shadow_share,
            release=str(self.id),
        )


def fleet_for(state: DesiredState, release: Release, salt: str) -> DesiredState:
    """The fleet with this release at its place: its split, no split, or the candidate's pool as the model's own.

    salt: for a new split; an existing split keeps its salt, so every session keeps its side. A fleet without the model
    does not change, and a split of another release stays.
    """
    model = state.model(release.model)
    if model is None or model.name != release.model:
        return state
    if release.state is State.PROMOTED:
        return _with(
            state,
            msgspec.structs.replace(
                model,
                pool=release.candidate_pool,
                engine_model=release.engine_model or model.engine_model,
                canary=None,
            ),
        )
    wanted = release.canary
    if wanted is not None:
        kept = model.canary.salt if model.canary is not None and is_of(model, release) else salt
        return _with(state, msgspec.structs.replace(model, canary=msgspec.structs.replace(wanted, salt=kept)))
    return _with(state, msgspec.structs.replace(model, canary=None)) if is_of(model, release) else state


def fleet_before(state: DesiredState, release: Release, engine_model: str | None) -> DesiredState:
    """The fleet with a promotion undone: the model on its baseline's pool. engine_model: the baseline's.

    Raises Conflict if the fleet has changed since the promotion, or the baseline no longer serves.
    """
    model, baseline = state.model(release.model), state.pool(release.baseline_pool)
    if model is None or model.name != release.model:
        raise Conflict(f"The promotion cannot be undone: the model {release.model!r} is gone.")
    if model.canary is not None:
        raise Conflict(
            f"The promotion cannot be undone: the model {model.name!r} is split between pools; end that first."
        )
    if model.pool != release.candidate_pool:
        raise Conflict(
            f"The promotion cannot be undone: the model's pool was changed from {release.candidate_pool!r} to "
            f"{model.pool!r}."
        )
    if baseline is None or not any(replica.weight > 0 for replica in baseline.replicas):
        raise Conflict(
            f"The promotion cannot be undone: the pool {release.baseline_pool!r} has no replica that takes load; start "
            "one, or release another candidate."
        )
    return _with(state, msgspec.structs.replace(model, pool=baseline.name, engine_model=engine_model))


def is_of(model: Model, release: Release) -> bool:
    """Whether the release splits the model."""
    return model.canary is not None and model.canary.release == str(release.id)


def why_lost(state: DesiredState, release: Release) -> str | None:
    """Why an unfinished release cannot continue in this fleet, as a clause; None if it can."""
    model = state.model(release.model)
    if model is None or model.name != release.model:
        return f"the model {release.model!r} is gone"
    for what, pool in (("candidate", release.candidate_pool), ("control", release.control_pool)):
        if pool and state.pool(pool) is None:
            return f"the {what} pool {pool!r} is gone"
    if model.pool != release.baseline_pool:
        return f"the model's pool was changed from {release.baseline_pool!r} to {model.pool!r}"
    if not _is_as_wanted(model.canary, release):
        return "the model's split was changed outside the release"
    return None


def idle_arm(state: DesiredState, release: Release) -> str:
    """The first pool of either arm without a replica that takes load; empty if both have one."""
    serving = {pool.name for pool in state.pools if any(replica.weight > 0 for replica in pool.replicas)}
    arms = (release.candidate_pool, release.control_pool or release.baseline_pool)
    return next((name for name in arms if name not in serving), "")


def _is_as_wanted(found: Canary | None, release: Release) -> bool:
    """Whether a split is the release's. A split of an older version, which copied requests only in the shadow stage,
    counts: it serves customers the same way."""
    wanted = release.canary
    if found is None or wanted is None:
        return found is wanted
    allowed = (wanted,) if release.in_shadow else (wanted, msgspec.structs.replace(wanted, shadow_share=0.0))
    return msgspec.structs.replace(found, salt="") in allowed


def without_splits_of(state: DesiredState, ended: frozenset[str]) -> DesiredState:
    """The fleet without the splits of these releases, by id."""
    models = (
        msgspec.structs.replace(model, canary=None)
        if model.canary is not None and model.canary.release in ended
        else model
        for model in state.models
    )
    return msgspec.structs.replace(state, models=tuple(models))


def _with(state: DesiredState, changed: Model) -> DesiredState:
    models = (changed if model.name == changed.name else model for model in state.models)
    return msgspec.structs.replace(state, models=tuple(models))
