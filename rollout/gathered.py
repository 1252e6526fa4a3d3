"""What else decides, beside requests: the gate's verdict on the slices, votes of reviewers, and copies of requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import func, select

from evals.judge import Policy, Slices, State
from gateway.db.rows import fetch
from gateway.evals import store as evals_store
from gateway.evals.tables import Status
from gateway.releases.release import Release
from gateway.shadow.pair import Outcome
from gateway.shadow.reviewing import coins
from gateway.shadow.tables import shadow_pairs

MOST_FAILED = 20
"""Copies that fail at a candidate, and outnumber those that both sides answered, end its release."""


async def queue_slices(connection: asyncpg.Connection[Any], release: Release, policy: Policy) -> UUID | None:
    """Have the release's slices compared, in the transaction that begins it; None: it asks for none.

    The judge rolls back on the gate's failure alone, so the gate may fail an equal candidate no oftener than by the
    slices' part of the release's alpha.
    """
    if not release.slices:
        return None
    return await evals_store.queue_comparison(
        connection,
        model=release.model,
        baseline_pool=release.baseline_pool,
        candidate_pool=release.candidate_pool,
        slices=release.slices,
        rule=evals_store.Rule(alpha=policy.promotion_alpha, fail_alpha=policy.alpha_of("slices")),
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
    found = await _copies(connection, release)
    failed = found.get(Outcome.FAILED, 0)
    if failed < MOST_FAILED or failed <= found.get(Outcome.COMPARED, 0):
        return ""
    return f"{failed} of {sum(found.values())} copies of requests failed at the candidate"


async def missing_in_shadow(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """What keeps a release in its shadow stage, in words; empty: nothing."""
    compared = (await _copies(connection, release)).get(Outcome.COMPARED, 0)
    if compared < release.shadow_least:
        return f"{release.shadow_least - compared} more copies of requests that both sides answered"
    return await _missing_slices(connection, release, state)


async def _copies(connection: asyncpg.Connection[Any], release: Release) -> dict[Outcome, int]:
    """How many there were, by what came of them."""
    of = shadow_pairs.c
    counted = select(of.outcome, func.count().label("pairs")).where(of.release == str(release.id)).group_by(of.outcome)
    return {Outcome(row["outcome"]): row["pairs"] for row in await fetch(connection, counted)}


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
