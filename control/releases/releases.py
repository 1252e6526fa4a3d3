"""Releases: a candidate pool takes over a model's sessions in stages, as far as its measurements allow.

A worker advances releases. Operators hold, resume, promote and roll them back without a worker: the same transaction
writes the desired state.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, Select, case, func, or_, select

from contracts.errors import Conflict
from control.api.call import AdminCall, not_found
from control.api.pages import page_of
from control.api.schemas import Body, ModelName, Name, Page, PageQuery
from control.releases import store
from control.releases.machine import Event, State
from control.releases.margins import MAX_UNITS, PROMOTION_ALPHA, Margins
from control.releases.release import Release
from control.releases.start import Wanted, require_startable
from control.releases.tables import release_steps, releases
from control.releases.warnings import warnings_of
from control.slices.startable import SliceRule, require_asked
from storage.rows import columns_of, equal, fetch, record_of

UNDECIDED = "inconclusive"
"""The judge's decision for a release whose budget of evidence is spent."""
STAGES = [0.0, 0.01, 0.05, 0.25, 1.0]
Share = Annotated[float, Meta(ge=0, le=1)]
Why = Annotated[str, Meta(min_length=1, max_length=500)]


class ReleaseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A release. share: the candidate's current share of the sessions. It is 0 before the first stage that serves
    customers and after a rollback, and 1 after promotion. stage: counted from 0.

    reason: of its last step. waits_for: what the release waits for; empty while every look takes a step.
    """

    id: UUID
    created_at: datetime
    model: str
    candidate_pool: str
    baseline_pool: str
    state: State
    stage: int
    share: float
    stage_began_at: datetime
    ended_at: datetime | None
    reason: str
    waits_for: str


class StageEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of one stage: its steps, and both arms' requests in them."""

    stage: int
    steps: int
    requests: int


class ReleaseStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step. stage, to_stage: the stage before and after it. requests: those that it used, from the share `sampled` of
    the sessions. more_units: the sessions that it added to the budget of evidence. desired_version: the version of
    desired state that it wrote; null for none."""

    step: int
    at: datetime
    event: Event
    stage: int
    to_stage: int
    state: State
    actor: str
    reason: str
    requests: int
    sampled: float
    more_units: int
    desired_version: int | None


class ReleaseDetail(ReleaseSummary, frozen=True, kw_only=True):
    """A release with its policy and its current evidence. verdict: the judge's last verdict; null before the first.
    more_units: sessions granted beyond its budget of evidence. policy, thresholds, organization_share (the maximum
    share of sessions of one organization): fixed when the release begins; null before. moves: the latest steps that
    changed more than evidence, in order. warnings: facts about its pools to consider when reading the evidence, such as
    a candidate on another kind of engine."""

    engine_model: str | None
    control_pool: str
    stages: list[float]
    shadow_share: float
    shadow_least: int
    slices: list[str]
    slice_rule: SliceRule
    comparison_id: UUID | None
    margins: dict[str, Any]
    organization_share: float | None
    more_units: int
    policy: dict[str, Any] | None
    thresholds: dict[str, Any] | None
    verdict: dict[str, Any] | None
    consumed: list[StageEvidence]
    moves: list[ReleaseStep]
    warnings: list[str]


class NewRelease(Body, frozen=True, kw_only=True):
    """engine_model: the candidate engines' name for the model, if it differs. control_pool: fresh replicas of the
    model's current pool, for the control arm. Without it, the control arm uses the current pool with caches of its own.
    stages: shares of the sessions, from 0 (shadow) to 1 (all traffic). shadow_share: the share of sessions whose
    requests are copied to the candidate in each stage before all traffic. shadow_least: the number of copies that both
    sides must answer before the shadow stage ends. slices: slices of the model's tier that must pass before the shadow
    stage ends or, without one, before all traffic. slice_rule: the rule by which slices are compared. A rule by which a
    slice could not pass is refused."""

    model: ModelName
    candidate_pool: Name
    engine_model: ModelName | None = None
    control_pool: Annotated[str, Meta(max_length=200)] = ""
    stages: Annotated[list[Share], Meta(min_length=2, max_length=20)] = msgspec.field(default_factory=STAGES.copy)
    shadow_share: Share = 0.05
    shadow_least: Annotated[int, Meta(ge=0, le=1_000_000)] = 100
    slices: Annotated[list[Name], Meta(max_length=100)] = msgspec.field(default_factory=list)
    slice_rule: SliceRule = SliceRule()
    margins: Margins = Margins()


class ReleaseReason(Body, frozen=True, kw_only=True):
    """reason: the reason for this manual step, for the release's steps and the audit log."""

    reason: Why


class ReleaseResumption(ReleaseReason, frozen=True, kw_only=True):
    """more_units: sessions to add to the release's budget of evidence. Required if the budget is spent; otherwise 0."""

    more_units: Annotated[int, Meta(ge=0, le=MAX_UNITS)] = 0


class ReleaseQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of releases."""

    model: str | None = None
    state: State | None = None


class StepQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of steps."""


MAX_MOVES = 20
_SHARE = case(
    (releases.c.state.in_([State.WAITING.value, State.ROLLED_BACK.value]), 0.0),
    else_=releases.c.stages[releases.c.stage + 1],
)
_SUMMARY = columns_of(ReleaseSummary, releases, share=_SHARE, waits_for=releases.c.told)


async def list_releases(call: AdminCall, query: ReleaseQuery) -> Page[ReleaseSummary]:
    """List releases, newest first."""
    statement = select(*_SUMMARY).where(
        equal(releases.c.model, query.model),
        equal(releases.c.state, None if query.state is None else query.state.value),
    )
    return await page_of(call.connection, ReleaseSummary, statement, query, releases.c.created_at, releases.c.id)


async def start_release(call: AdminCall, body: NewRelease) -> ReleaseDetail:
    """Start a release. It begins once the model's pool has answered enough requests for a comparison.

    `warnings` lists notable facts, such as a candidate on another kind of engine. The response is 409 if the model
    already has a release or a split.
    """
    slices = list(dict.fromkeys(body.slices))
    wanted = Wanted(
        model=body.model,
        candidate_pool=body.candidate_pool,
        engine_model=body.engine_model,
        control_pool=body.control_pool,
        stages=tuple(body.stages),
        margins=body.margins,
    )
    require_asked("slice_rule.margins", body.slice_rule.margins, slices)
    await call.slices.require(slices, body.slice_rule, body.margins.promotion_alpha or PROMOTION_ALPHA)
    model, margins = require_startable(await store.fleet(call.connection), wanted)
    await call.slices.require_tier(slices, model)
    try:
        made = await store.create(
            call.connection,
            _name(call),
            model=body.model,
            candidate_pool=body.candidate_pool,
            engine_model=body.engine_model,
            baseline_pool=model.pool,
            control_pool=body.control_pool,
            stages=body.stages,
            shadow_share=body.shadow_share,
            shadow_least=body.shadow_least if body.shadow_share else 0,
            slices=slices,
            slice_rule=msgspec.json.encode(body.slice_rule).decode(),
            margins=msgspec.json.encode(margins).decode(),
        )
    except asyncpg.UniqueViolationError:
        raise Conflict(
            f"The model {body.model!r} has a release that has not ended; roll it back, or wait for its end."
        ) from None
    call.audit("release.start", made.id, organization_id=None, after=made)
    return await _detail(call, made)


async def get_release(call: AdminCall, release_id: UUID) -> ReleaseDetail:
    """Get a release and its current evidence."""
    return await _detail(call, _existing(release_id, await store.read(call.connection, release_id)))


async def list_release_steps(call: AdminCall, release_id: UUID, query: StepQuery) -> Page[ReleaseStep]:
    """List a release's steps, newest first."""
    _existing(release_id, await store.read(call.connection, release_id))
    statement = select(*columns_of(ReleaseStep, release_steps)).where(release_steps.c.release_id == release_id)
    return await page_of(call.connection, ReleaseStep, statement, query, release_steps.c.step)


async def hold_release(call: AdminCall, release_id: UUID, body: ReleaseReason) -> ReleaseDetail:
    """Hold a release in its stage. Judging continues, and a rollback can still happen automatically."""
    return await _by_hand(call, release_id, Event.HOLD, body.reason)


async def resume_release(call: AdminCall, release_id: UUID, body: ReleaseResumption) -> ReleaseDetail:
    """Resume a held release.

    The response is 409 if its budget of evidence is spent and `more_units` adds none, because it would be held again at
    once.
    """
    # none if sessions were granted since: no look has judged by them yet
    verdict = _json(await call.value(_last_verdict(release_id, release_steps.c.more_units > 0)))
    if verdict is not None and verdict["decision"] == UNDECIDED and not body.more_units:
        raise Conflict(
            f"The release would be held again at once: {verdict['reason']}. Grant it sessions by 'more_units', promote "
            "it by hand or roll it back.",
            param="more_units",
        )
    return await _by_hand(call, release_id, Event.RESUME, body.reason, body.more_units)


async def promote_release(call: AdminCall, release_id: UUID, body: ReleaseReason) -> ReleaseDetail:
    """Advance a release by one stage, regardless of its evidence. After the last share, it gets all traffic."""
    return await _by_hand(call, release_id, Event.PROMOTE, body.reason)


async def roll_back_release(call: AdminCall, release_id: UUID, body: ReleaseReason) -> ReleaseDetail:
    """Roll a release back. The candidate gets no more sessions and finishes its running requests.

    A promoted release can be rolled back while its model is unchanged. The baseline pool then serves the model again.
    """
    return await _by_hand(call, release_id, Event.ROLL_BACK, body.reason)


async def _by_hand(call: AdminCall, release_id: UUID, event: Event, reason: str, more_units: int = 0) -> ReleaseDetail:
    before = await _find(call, release_id)
    after = await store.step(
        call.connection, before, event, reason=reason, actor=None, by=_name(call), more_units=more_units
    )
    call.audit(f"release.{event.value}", release_id, organization_id=None, before=before, after=after)
    return await _detail(call, after)


async def _find(call: AdminCall, release_id: UUID) -> Release:
    """Read and lock the release. The worker skips a locked release, and holds its own lock briefly. Raises NotFound."""
    return _existing(release_id, await store.locked(call.connection, release_id))


def _existing(release_id: UUID, found: Release | None) -> Release:
    if found is None:
        raise not_found("release", release_id)
    return found


async def _detail(call: AdminCall, release: Release) -> ReleaseDetail:
    summary = await call.one(ReleaseSummary, select(*_SUMMARY).where(releases.c.id == release.id))
    steps = release_steps.c
    stages = (
        select(steps.stage, func.count().label("steps"), func.sum(steps.requests).label("requests"))
        .where(steps.release_id == release.id)
        .group_by(steps.stage)
        .order_by(steps.stage)
    )
    moves = (
        select(*columns_of(ReleaseStep, release_steps))
        .where(steps.release_id == release.id, steps.event != Event.OBSERVE.value)
        .order_by(steps.step.desc())
        .limit(MAX_MOVES)
    )
    return ReleaseDetail(
        **msgspec.structs.asdict(summary),
        engine_model=release.engine_model,
        control_pool=release.control_pool,
        stages=list(release.stages),
        shadow_share=release.shadow_share,
        shadow_least=release.shadow_least,
        slices=list(release.slices),
        slice_rule=msgspec.json.decode(release.slice_rule, type=SliceRule),
        comparison_id=release.comparison_id,
        margins=msgspec.json.decode(release.margins),
        organization_share=release.organization_share,
        more_units=release.more_units,
        policy=_json(release.policy),
        thresholds=_json(release.thresholds),
        verdict=_json(await call.value(_last_verdict(release.id))),
        consumed=[msgspec.convert(dict(row), StageEvidence) for row in await fetch(call.connection, stages)],
        moves=[record_of(ReleaseStep, row) for row in reversed(await fetch(call.connection, moves))],
        warnings=warnings_of(await store.fleet(call.connection), release),
    )


def _last_verdict(release_id: UUID, *others: ColumnElement[bool]) -> Select[Any]:
    """The verdict of the last step with one; null if a later step meets one of the other conditions."""
    steps = release_steps.c
    found = select(steps.verdict).where(steps.release_id == release_id, or_(steps.verdict.is_not(None), *others))
    return found.order_by(steps.step.desc()).limit(1)


def _json(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text, type=dict[str, Any])


def _name(call: AdminCall) -> str:
    return call.principal.email or call.principal.name
