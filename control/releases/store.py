"""A release's steps as transactions: its row, the step's row and the desired state change together or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import select

from contracts.desired_state import DesiredState
from contracts.errors import Conflict
from control.fleet.revision import at, newest, write
from control.releases.machine import ON, Event, Place, State, after
from control.releases.release import Release, fleet_before, fleet_for, idle_arm, why_lost, without_splits_of
from control.releases.tables import release_steps, releases
from storage.audit_log import Actor, Change, record
from storage.rows import columns_of, fetch, fetchrow, fetchval, record_of

CONTROLLER = Actor.system("slipstream worker")
"""The actor of the steps that a verdict takes."""
_COLUMNS = columns_of(Release, releases)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence that a step consumed."""

    packed: bytes
    requests: int
    sampled: float
    watermark: int


async def running(connection: asyncpg.Connection[Any]) -> list[UUID]:
    """The ids of releases that have not ended, the oldest first."""
    found = select(releases.c.id).where(releases.c.ended_at.is_(None)).order_by(releases.c.created_at)
    return [row["id"] for row in await fetch(connection, found)]


async def create(connection: asyncpg.Connection[Any], by: str, **values: object) -> Release:
    """Create a waiting release with its first step. values: columns. Raises UniqueViolationError if the model has a
    release that has not ended."""
    first = {"state": State.WAITING.value, "stage": 0, "step": 0, "reason": "", **values}
    row = await fetchrow(connection, releases.insert().values(**first).returning(*_COLUMNS))
    assert row is not None
    made = record_of(Release, row)
    return await step(connection, made, Event.START, reason="started", actor=None, by=by)


async def newest_by_model(connection: asyncpg.Connection[Any]) -> list[Release]:
    """The newest release of every model that has had one."""
    statement = select(*_COLUMNS).distinct(releases.c.model).order_by(releases.c.model, releases.c.created_at.desc())
    return [record_of(Release, row) for row in await fetch(connection, statement)]


async def read(connection: asyncpg.Connection[Any], release_id: UUID) -> Release | None:
    """The release; None if it does not exist. A reader takes no lock: its worker and a rollback would wait for it."""
    row = await fetchrow(connection, select(*_COLUMNS).where(releases.c.id == release_id))
    return None if row is None else record_of(Release, row)


async def locked(connection: asyncpg.Connection[Any], release_id: UUID, *, skip: bool = False) -> Release | None:
    """The release, locked for this transaction; None if it does not exist or, with `skip`, another transaction holds
    it."""
    statement = select(*_COLUMNS).where(releases.c.id == release_id).with_for_update(skip_locked=skip)
    row = await fetchrow(connection, statement)
    return None if row is None else record_of(Release, row)


async def fleet(connection: asyncpg.Connection[Any]) -> DesiredState:
    """The newest desired state; version 0 before the first one."""
    return (await newest(connection)).state


async def step(
    connection: asyncpg.Connection[Any],
    release: Release,
    event: Event,
    *,
    reason: str,
    actor: Actor | None = CONTROLLER,
    by: str = CONTROLLER.name,
    evidence: Evidence | None = None,
    verdict: str | None = None,
    more_units: int = 0,
    **columns: object,
) -> Release:
    """Take one step of a release, in the transaction that `locked` it; returns the release after the step.

    actor: for the audit log, if the step moves the release; None if the caller writes that entry. by: the actor's name
    in the step. more_units: sessions that a person adds to the budget of evidence. columns: of `releases`, in addition
    to those that every step sets. Raises Conflict if the event cannot happen or the fleet was changed meanwhile.
    """
    place = release.place if event is Event.START else after(release.place, event, len(release.stages))
    now = datetime.now(UTC)
    values: dict[str, Any] = {"step": release.step + 1, "reason": reason, "told": "", **columns}
    if place != release.place:
        values |= {"state": place.state.value, "stage": place.stage}
        values["desired_version"] = await _write_split(connection, release, place, event, by)
    if place.stage != release.stage or event is Event.BEGIN:
        values["stage_began_at"] = now
    if place.state.ended:
        values["ended_at"] = now
    if more_units:
        values["more_units"] = release.more_units + more_units
    if evidence is not None:
        values["watermark"] = evidence.watermark
    statement = releases.update().where(releases.c.id == release.id).values(**values).returning(*_COLUMNS)
    row = await fetchrow(connection, statement)
    assert row is not None
    moved = record_of(Release, row)
    await fetchval(
        connection,
        release_steps.insert().values(
            release_id=release.id,
            step=moved.step,
            event=event.value,
            stage=release.stage,
            to_stage=moved.stage,
            state=moved.state.value,
            actor=by,
            reason=reason,
            evidence=None if evidence is None else evidence.packed,
            requests=0 if evidence is None else evidence.requests,
            sampled=1.0 if evidence is None else evidence.sampled,
            more_units=more_units,
            verdict=verdict,
            desired_version=values.get("desired_version"),
        ),
    )
    if actor is not None and place != release.place:
        change = Change(
            action=f"release.{event.value}",
            subject_id=str(release.id),
            organization_id=None,
            before=release,
            after=moved,
        )
        await record(connection, actor, change)
    return moved


async def _write_split(
    connection: asyncpg.Connection[Any], release: Release, place: Place, event: Event, by: str
) -> int | None:
    """Write the fleet with the release at that place; see `write_fleet`."""
    moved = msgspec.structs.replace(release, state=place.state, stage=place.stage)
    salt = secrets.token_hex(16)
    if release.state is State.PROMOTED:
        before = await _engine_model_before(connection, release)
        return await write_fleet(
            connection, lambda state: fleet_before(state, release, before), action=f"release.{event.value}", by=by
        )

    def edit(state: DesiredState) -> DesiredState:
        """Check under the writers' lock: a release does not continue in a fleet that was changed outside it."""
        if event in ON and (lost := why_lost(state, release)) is not None:
            raise Conflict(f"The release cannot continue: {lost}.")
        if event is Event.BEGIN and (idle := idle_arm(state, release)):
            raise Conflict(f"The release cannot begin: no replica of the pool {idle!r} takes load.")
        return fleet_for(state, moved, salt)

    return await write_fleet(connection, edit, action=f"release.{event.value}", by=by)


async def _engine_model_before(connection: asyncpg.Connection[Any], release: Release) -> str | None:
    """The baseline's engines' name for the model. Raises Conflict if it is no longer known."""
    promoted = release.desired_version
    found = None if promoted is None else await at(connection, promoted - 1)
    model = None if found is None else found.state.model(release.model)
    if model is None:
        raise Conflict(
            "The promotion cannot be undone: the fleet before it is no longer stored; set the model's pool by hand."
        )
    return model.engine_model


async def tell(connection: asyncpg.Connection[Any], release: Release, told: str, **columns: object) -> Release:
    """Record why a release does not move, without a step. columns: see `step`."""
    if release.told == told and not columns:
        return release
    values = {"told": told, **columns}
    statement = releases.update().where(releases.c.id == release.id).values(**values).returning(*_COLUMNS)
    row = await fetchrow(connection, statement)
    assert row is not None
    return record_of(Release, row)


async def sweep(connection: asyncpg.Connection[Any], state: DesiredState) -> int | None:
    """Remove splits of releases that have ended or were deleted; returns the written version, None without any.

    state: the newest desired state. A release ends together with its split, so this finds splits that old settings
    restored or whose release was deleted.
    """
    named = {model.canary.release for model in state.models if model.canary is not None and model.canary.release}
    if not named:
        return None
    ended = frozenset(named) - await _active(connection)
    if not ended:
        return None
    return await write_fleet(connection, lambda newest: without_splits_of(newest, ended), CONTROLLER, "release.sweep")


async def _active(connection: asyncpg.Connection[Any]) -> frozenset[str]:
    return frozenset(str(each) for each in await running(connection))


async def write_fleet(
    connection: asyncpg.Connection[Any],
    edit: Callable[[DesiredState], DesiredState],
    actor: Actor | None = None,
    action: str = "",
    by: str = CONTROLLER.name,
) -> int | None:
    """Write a new version of the desired state in the caller's transaction; returns it, None if nothing changes.

    actor: for the audit log; None if the caller writes the entry. by: see `step`. Raises ConfigError if the edited
    state contradicts itself.
    """
    written = await write(connection, edit, actor=by, action=action)
    if written.after is written.before:
        return None
    if actor is not None:
        await record(connection, actor, msgspec.structs.replace(written.change, action=action))
    return written.after.state.version


async def steps_of(
    connection: asyncpg.Connection[Any], release_id: UUID, *, behind: int = 0, most: int | None = None
) -> list[asyncpg.Record]:
    """The steps of a release with their evidence, in order. behind: only steps after this one. most: None for all."""
    steps = release_steps.c
    statement = select(release_steps).where(steps.release_id == release_id, steps.step > behind).order_by(steps.step)
    return await fetch(connection, statement.limit(most))
