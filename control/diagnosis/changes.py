"""The ledger of changes, with the expected and the measured effect of each on latency.

A change's effect is computed on request until `measure_change` stores it, because traces are deleted eventually.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import select

from contracts.errors import Conflict
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.moments import moment
from control.api.pages import page_of
from control.api.schemas import Body, Deleted, ModelName, Moment, Name, Page, PageQuery
from control.diagnosis.effect import Effect, effect_of
from control.diagnosis.findings import comparison
from control.diagnosis.findings.evidence import TAILS
from control.diagnosis.tables import Metric, Statistic, changes
from storage.rows import columns_of

DAY_S, MAX_DAYS = 86_400, 7
TOLD_FROM = {name: requests for requests, name in TAILS}
MIN = {each: TOLD_FROM.get(each.value, comparison.MIN) for each in Statistic}
"""Requests that each side needs, as in a diagnosis."""


class ExpectedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change and its effect. expected_ms: the expected increase in milliseconds; negative for a decrease. before_ms,
    after_ms: null without requests. effect_ms: their difference. measured_at: when the measured values were stored;
    null if they were computed for this response, in which case the window after the change may not be over."""

    id: UUID
    name: str
    made_at: datetime
    metric: Metric
    statistic: Statistic
    tier: Tier | None
    model: str | None
    window_s: int
    expected_ms: float
    before_ms: float | None
    before_requests: int | None
    after_ms: float | None
    after_requests: int | None
    effect_ms: float | None
    measured_at: datetime | None
    created_at: datetime


class NewChange(Body, frozen=True, kw_only=True):
    """made_at: by default, now. window_s: the length of the windows before and after the change; by default, a day.
    tier, model: the measured requests; by default, all."""

    name: Name
    metric: Metric
    expected_ms: Annotated[float, Meta(ge=-3_600_000, le=3_600_000)]
    statistic: Statistic = Statistic.P95
    tier: Tier | None = None
    model: ModelName | None = None
    made_at: Moment | None = None
    window_s: Annotated[int, Meta(ge=60, le=MAX_DAYS * DAY_S)] = DAY_S


async def list_changes(call: AdminCall, query: PageQuery) -> Page[ExpectedChange]:
    """List changes with their expected and measured effects, newest first."""
    page = await page_of(
        call.connection, _Kept, select(*columns_of(_Kept, changes)), query, changes.c.made_at, changes.c.id
    )
    shown = [await _shown(call, each) for each in page.data]
    return Page(data=shown, has_more=page.has_more, next_cursor=page.next_cursor)


async def create_change(call: AdminCall, body: NewChange) -> ExpectedChange:
    """Record a change and its expected effect, preferably before making it."""
    made_at = datetime.now(UTC) if body.made_at is None else moment(body.made_at, "made_at")
    values = {**msgspec.structs.asdict(body), "made_at": made_at}
    made = await call.one(_Kept, changes.insert().values(**values).returning(*columns_of(_Kept, changes)))
    call.audit("change.create", made.id, organization_id=None, after=made)
    return await _shown(call, made)


async def measure_change(call: AdminCall, change_id: UUID) -> ExpectedChange:
    """Measure a change's effect and store it, because the traces are deleted later.

    The response is 409 until the window after the change has ended, and if either window has too few requests for the
    statistic.
    """
    before = await _find(call, change_id)
    effect = await _effect(call, before)
    _require_whole(before, effect)
    after = await call.one(
        _Kept,
        changes.update()
        .where(changes.c.id == change_id)
        .values(
            before_ms=effect.before.value_ms,
            before_requests=effect.before.requests,
            after_ms=effect.after.value_ms,
            after_requests=effect.after.requests,
            measured_at=datetime.now(UTC),
        )
        .returning(*columns_of(_Kept, changes)),
    )
    call.audit("change.measure", change_id, organization_id=None, before=before, after=after)
    return await _shown(call, after)


async def delete_change(call: AdminCall, change_id: UUID) -> Deleted:
    """Delete a change that was never made."""
    before = await _find(call, change_id)
    await call.value(changes.delete().where(changes.c.id == change_id))
    call.audit("change.delete", change_id, organization_id=None, before=before)
    return Deleted(id=change_id)


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `changes`."""

    id: UUID
    name: str
    made_at: datetime
    metric: Metric
    statistic: Statistic
    tier: Tier | None
    model: str | None
    window_s: int
    expected_ms: float
    before_ms: float | None
    before_requests: int | None
    after_ms: float | None
    after_requests: int | None
    measured_at: datetime | None
    created_at: datetime


async def _find(call: AdminCall, change_id: UUID) -> _Kept:
    """Read and lock a change. Raises NotFound."""
    statement = select(*columns_of(_Kept, changes)).where(changes.c.id == change_id).with_for_update()
    return await call.find(_Kept, statement, "change", change_id)


async def _effect(call: AdminCall, kept: _Kept) -> Effect:
    return await effect_of(
        call.connection,
        made_at=kept.made_at,
        window_s=kept.window_s,
        metric=kept.metric,
        statistic=kept.statistic,
        tier=kept.tier,
        model=kept.model,
    )


async def _shown(call: AdminCall, kept: _Kept) -> ExpectedChange:
    values = msgspec.structs.asdict(kept)
    if kept.measured_at is None:
        effect = await _effect(call, kept)
        values |= {
            "before_ms": effect.before.value_ms,
            "before_requests": effect.before.requests,
            "after_ms": effect.after.value_ms,
            "after_requests": effect.after.requests,
        }
    both = values["before_ms"] is not None and values["after_ms"] is not None
    return ExpectedChange(**values, effect_ms=values["after_ms"] - values["before_ms"] if both else None)


def _require_whole(kept: _Kept, effect: Effect) -> None:
    """Raise Conflict unless both windows are over and have enough requests."""
    if not effect.complete:
        raise Conflict(
            f"The period of {kept.window_s} s after the change {kept.name!r} has not passed yet. Measure the change "
            "after that."
        )
    least = MIN[kept.statistic]
    for side, number in (("before", effect.before), ("after", effect.after)):
        if number.requests < least:
            raise Conflict(
                f"{number.requests} requests {side} the change {kept.name!r} are too few for a "
                f"{kept.statistic.value}, which needs {least}. Record the change again with a longer window, or "
                "another statistic."
            )
