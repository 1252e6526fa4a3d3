"""What else decides, beside requests: the gate's verdict on the slices, votes of reviewers, and copies of requests."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import and_, case, func, or_, select, true

from evals.judge import Policy, Slices, State
from evals.judge.wealth import inverse, wealth
from gateway.db.rows import fetch
from gateway.evals import store as evals_store
from gateway.evals.startable import SliceRule
from gateway.evals.tables import Status
from gateway.releases.release import Release
from gateway.shadow.pair import Outcome
from gateway.shadow.reviewing import coins
from gateway.shadow.tables import shadow_pairs

TOLERATED = Decimal("0.05")
"""Part of the copies that a candidate may fail at: they run beside its work, at the lowest priority."""
ALPHA = 0.01
"""Probability that one which fails at no more is ever taken for broken, however often it is looked at."""
_P = shadow_pairs.c
_COMPARED = _P.outcome == Outcome.COMPARED.value
_CALLED = _P.same_tool_calls.is_not(None)
SILENT = and_(_COMPARED, ~_CALLED, _P.candidate_characters == 0, _P.baseline_characters > 0)
"""Nothing was answered where the customer had a text."""
_SPOKE = and_(_COMPARED, ~_CALLED, _P.candidate_characters > 0, _P.baseline_characters == 0)


async def queue_slices(connection: asyncpg.Connection[Any], release: Release, policy: Policy) -> UUID | None:
    """Have the release's slices compared, in the transaction that begins it; None: it asks for none.

    The judge rolls back on the gate's failure alone, so the gate may fail an equal candidate no oftener than by the
    slices' part of the release's alpha.
    """
    if not release.slices:
        return None
    asked = msgspec.json.decode(release.slice_rule, type=SliceRule)
    return await evals_store.queue_comparison(
        connection,
        model=release.model,
        baseline_pool=release.baseline_pool,
        candidate_pool=release.candidate_pool,
        slices=release.slices,
        budget=asked.budget_items,
        rule=evals_store.Rule(
            margin=asked.margin,
            alpha=policy.promotion_alpha,
            fail_alpha=policy.alpha_of("slices"),
            correlation=asked.correlation,
        ),
        release_id=release.id,
    )


async def slices_said(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """The gate's verdict, if the judge has not had it; empty: nothing new."""
    if release.comparison_id is None or state.slices in (Slices.PASS, Slices.FAIL):
        return ""
    found = await evals_store.comparison(connection, release.comparison_id)
    said = "" if found.decision is None else Slices(found.decision.value).value
    return said if said != state.slices.value else ""


async def votes_cast(connection: asyncpg.Connection[Any], release: Release, state: State) -> tuple[int, int]:
    """Votes that the judge has not had, by which the candidate's answer was the worse one, and the better one."""
    found = await coins(connection, str(release.id))
    return max(0, found.worse - state.worse_votes), max(0, found.better - state.better_votes)


async def broken_in_shadow(connection: asyncpg.Connection[Any], release: Release) -> str:
    """Why a candidate serves nobody, in words; empty: it may. Customers had answers to all that was copied."""
    of_session = func.avg(case((or_(_P.outcome == Outcome.FAILED.value, SILENT), 1), (_SPOKE, -1), else_=0))
    sessions = (
        select(func.round(of_session, 2).label("broken"), func.count().label("copies"))
        .where(_P.release == str(release.id))
        .group_by(_P.unit)
        .subquery()
    )
    alike = select(sessions.c.broken, func.count().label("sessions")).group_by(sessions.c.broken)
    outcomes = [(row["broken"] - TOLERATED, row["sessions"]) for row in await fetch(connection, alike)]
    if wealth(outcomes) < inverse(ALPHA):
        return ""
    found = await _copies(connection, release)
    said = f"{found.failed} of {found.copies} copies of requests failed at the candidate"
    return f"{said}, {found.silent} had no text where the customer's answer had one" if found.silent else said


async def missing_in_shadow(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """What keeps a release in its shadow stage, in words; empty: nothing."""
    compared = (await _copies(connection, release)).compared
    if compared < release.shadow_least:
        return f"{release.shadow_least - compared} more copies of requests that both sides answered"
    return await _missing_slices(connection, release, state)


class _Copies(msgspec.Struct, frozen=True):
    """How many there were, by what came of them."""

    copies: int
    failed: int
    silent: int
    compared: int
    """Both sides answered, as far as the baseline did."""


async def _copies(connection: asyncpg.Connection[Any], release: Release) -> _Copies:
    failed = func.count().filter(_P.outcome == Outcome.FAILED.value)
    compared = func.count().filter(and_(_COMPARED, func.coalesce(~SILENT, true())))
    [row] = await fetch(
        connection,
        select(func.count(), failed, func.count().filter(SILENT), compared).where(_P.release == str(release.id)),
    )
    return _Copies(*row)


async def _missing_slices(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    if release.comparison_id is None or state.slices is Slices.PASS:
        return ""
    found = await evals_store.comparison(connection, release.comparison_id)
    what = f"a pass of the slices {', '.join(release.slices)}"
    if found.status in (Status.FAILED, Status.CANCELLED):
        why = found.error or "somebody cancelled it"
        return f"{what}; their comparison {found.id} was {found.status.value}: {why}. Promote by hand, or roll back"
    if state.slices is Slices.INCONCLUSIVE:
        return f"{what}; their comparison {found.id} ended undecided. Promote by hand, or roll back"
    return f"{what}; their comparison {found.id} is {found.status.value}"
