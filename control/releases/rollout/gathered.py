"""Reads the evidence other than requests: the gate's verdict on the slices, reviewers' votes, and copies of requests.

Copies are rows like traces, and are consumed like them (`control/releases/rollout/evidence.py`).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import and_, case, func, not_, or_, select, true

from control.evals import store as evals_store
from control.releases.judge import Copy, Policy, Slices, State
from control.releases.release import Release
from control.shadow.reviewing import coins
from control.shadow.tables import shadow_pairs
from control.slices.startable import SliceRule
from gateway.shadow.pair import Outcome
from storage.rows import fetch
from storage.tables.evals import Status

_P = shadow_pairs.c
_COMPARED = _P.outcome == Outcome.COMPARED.value
_FAILED = _P.outcome == Outcome.FAILED.value
_UNKNOWN = _P.outcome.in_([Outcome.LATE.value, Outcome.LONG.value])
"""Copies for which the candidate's full answer is unknown."""
_BASELINE_FAILED = _P.baseline_error_code.is_not(None)
_CALLED = _P.same_tool_calls.is_not(None)
SILENT = and_(_COMPARED, ~_CALLED, _P.candidate_characters == 0, _P.baseline_characters > 0)
"""Copies that the candidate answered with nothing, although the customer got text."""
_SPOKE = and_(_COMPARED, ~_CALLED, _P.candidate_characters > 0, _P.baseline_characters == 0)


async def queue_slices(connection: asyncpg.Connection[Any], release: Release, policy: Policy) -> UUID | None:
    """Queue the comparison of the release's slices, in the transaction that begins the release; None without slices.

    The judge rolls back on the gate's failure alone, so the gate may fail an equal candidate with at most the slices'
    part of the release's alpha.
    """
    if not release.slices:
        return None
    rule = msgspec.json.decode(release.slice_rule, type=SliceRule)
    return await evals_store.queue_comparison(
        connection,
        model=release.model,
        baseline_pool=release.baseline_pool,
        candidate_pool=release.candidate_pool,
        slices=release.slices,
        budget=rule.budget_items,
        rule=evals_store.Rule(
            margin=rule.margin,
            margins=rule.margins,
            alpha=policy.promotion_alpha,
            fail_alpha=policy.alpha_of("slices"),
            correlation=rule.correlation,
        ),
        release_id=release.id,
    )


async def slices_said(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """The gate's verdict if it is new to the judge, otherwise empty."""
    if release.comparison_id is None or state.slices in (Slices.PASS, Slices.FAIL):
        return ""
    found = await evals_store.comparison(connection, release.comparison_id)
    decision = "" if found.decision is None else Slices(found.decision.value).value
    return decision if decision != state.slices.value else ""


async def votes_cast(connection: asyncpg.Connection[Any], release: Release, state: State) -> tuple[int, int]:
    """Numbers of votes, new to the judge, for which the candidate's answer was the worse and the better one."""
    found = await coins(connection, str(release.id))
    return max(0, found.worse - state.worse_votes), max(0, found.better - state.better_votes)


async def copies(connection: asyncpg.Connection[Any], release: Release, end: int) -> tuple[Copy, ...]:
    """Outcomes of copies of requests between the release's watermark and `end`, a horizon, like `evidence.read`.

    A copy that was late or too long while the customer got a response favours neither side, and is left out. If the
    customer's own engine failed, it counts for the candidate like a response: two equal engines fail either way.
    """
    worse = case(
        (_FAILED, case((_BASELINE_FAILED, 0), else_=1)), (or_(_BASELINE_FAILED, _SPOKE), -1), (SILENT, 1), else_=0
    )
    compared = and_(_COMPARED, func.coalesce(not_(SILENT), true()))
    statement = (
        select(_P.unit, worse.label("worse"), compared.label("compared"))
        .where(
            _P.release == str(release.id),
            _P.transaction_id >= release.watermark,
            _P.transaction_id < end,
            or_(not_(_UNKNOWN), _BASELINE_FAILED),
        )
        .order_by(_P.transaction_id, _P.id)
    )
    return tuple(Copy(row["unit"], row["worse"], row["compared"]) for row in await fetch(connection, statement))


async def slices_wait_for(connection: asyncpg.Connection[Any], release: Release, state: State) -> str:
    """What the comparison of the release's slices lacks, in words; empty if nothing."""
    if release.comparison_id is None or state.slices is Slices.PASS:
        return ""
    found = await evals_store.comparison(connection, release.comparison_id)
    what = f"a pass of the slices {', '.join(release.slices)}"
    if found.status in (Status.FAILED, Status.CANCELLED):
        why = found.error or "it was cancelled"
        return f"{what}; their comparison {found.id} was {found.status.value}: {why}. Promote by hand, or roll back"
    if state.slices is Slices.INCONCLUSIVE:
        return f"{what}; their comparison {found.id} ended undecided. Promote by hand, or roll back"
    return f"{what}; their comparison {found.id} is {found.status.value}"
