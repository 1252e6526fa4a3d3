"""What else a verdict is made of, beside requests: the gate's verdict on the slices, pairs of answers, and votes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from evals.judge import Slices, State
from gateway.evals import store as evals_store
from gateway.evals.tables import Status
from gateway.releases.release import Release
from gateway.shadow.reviewing import coins
from gateway.shadow.sums import compared


async def queue_slices(connection: asyncpg.Connection[Any], release: Release) -> UUID | None:
    """Have the release's slices compared, in the transaction that begins it; None: it asks for none."""
    if not release.slices:
        return None
    return await evals_store.queue_comparison(
        connection,
        model=release.model,
        baseline_pool=release.baseline_pool,
        candidate_pool=release.candidate_pool,
        slices=release.slices,
        release_id=release.id,
    )


async def slices_said(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """The gate's verdict, if the judge has not had it; empty: nothing new."""
    if release.comparison_id is None or state.slices in (Slices.PASS, Slices.FAIL):
        return ""
    found = await evals_store.comparison(connection, release.comparison_id)
    said = "" if found.decision is None else Slices(found.decision.value).value
    return said if said != state.slices.value else ""


async def votes_said(connection: asyncpg.Connection[Any], release: Release, state: State) -> tuple[int, int]:
    """Sessions whose first decisive vote the judge has not had: against the candidate, and for it."""
    found = await coins(connection, str(release.id))
    return max(found.worse - state.worse_votes, 0), max(found.better - state.better_votes, 0)


async def missing_in_shadow(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """What keeps a release in its shadow stage, in words; empty: nothing."""
    if release.shadow_least and (pairs := await compared(connection, str(release.id))) < release.shadow_least:
        return f"{release.shadow_least - pairs} more pairs of answers"
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
