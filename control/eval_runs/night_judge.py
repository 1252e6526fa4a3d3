"""Judges nights that have ended: reads their answers and those of earlier nights, stores the verdict, reports a fail
and, if the settings allow it, rolls back the promotion. Each night has one transaction, so a killed worker leaves it
judged or unjudged, and only one of several workers judges it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import SlipstreamError
from control.eval_runs import nights as rows
from control.eval_runs.night_plan import NightPlanner
from control.eval_runs.nights import EvalNight
from control.evals import store
from control.evals.store import Run
from control.releases import store as releases
from control.releases.machine import Event
from control.webhooks.outbox import EventType, emit
from evals import nights
from evals.nights import Night, NightRule, NightVerdict, SliceNight
from storage.audit_log import Actor
from storage.tables.evals import Decision, Status

Connection: TypeAlias = "asyncpg.Connection[Any]"

ACTOR = Actor.system("slipstream worker")
LATE_DAYS = 3
"""Older nights are no longer judged."""
REPORT_EVERY_S = 30.0
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('slipstream nights'))"
_EARLIER = """
SELECT id, night, version::text AS version FROM evals.runs
 WHERE model = $1 AND night < $2 AND status = 'done' AND version IS NOT NULL ORDER BY night DESC LIMIT $3
"""
_VERSION = "SELECT version::text FROM evals.runs WHERE id = $1"
_ITEMS = """
SELECT items.run_id, items.slice, slice_version_id::text AS slice_version,
       array_agg(seed) AS seeds, array_agg(cluster) AS clusters, array_agg(score) AS scores
  FROM evals.items JOIN evals.run_slices USING (run_id, slice)
 WHERE items.run_id = ANY ($1::uuid[])
 GROUP BY items.run_id, items.slice, slice_version_id
"""
_IS_JUDGED = "SELECT EXISTS (SELECT FROM evals.nights WHERE run_id = $1)"
_STORE = """
INSERT INTO evals.nights (run_id, model, pool, night, decision, reason, version_since, changed, slices, release_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10)
"""
_OPERATOR = "SELECT id FROM gateway.organizations WHERE operator"

_log = logging.getLogger(__name__)


class NightJudge:
    """The judge of one worker process. show: shows the last judged night of every model as metrics."""

    def __init__(
        self,
        planner: NightPlanner,
        show: Callable[[Sequence[EvalNight]], None],
        rule: NightRule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planner = planner
        self._show = show
        self._rule = rule or NightRule()
        self._clock = clock
        self._reported_s = -REPORT_EVERY_S

    async def look(self, connection: Connection) -> int:
        """Judge ended nights; returns their number. Raises FAILURES of the database."""
        found = await rows.unjudged(connection, LATE_DAYS)
        for run_id in found:
            await self._judge(connection, run_id)
        if found or self._clock() - self._reported_s >= REPORT_EVERY_S:
            models = await self._planner.report(connection, datetime.now(UTC))
            self._show(await rows.newest_by_model(connection, models))
            self._reported_s = self._clock()
        return len(found)

    async def _judge(self, connection: Connection, run_id: UUID) -> None:
        async with connection.transaction():
            await connection.execute(_LOCK)
            if await connection.fetchval(_IS_JUDGED, run_id):  # by another worker, meanwhile
                return
            run = await store.run(connection, run_id)
            assert run.night is not None
            if run.status is not Status.DONE:
                await self._store(connection, run, None, _why_unfinished(run))
                return
            found = await _nights(connection, run, self._rule)
            if not found or not found[-1].slices:
                await self._store(connection, run, None, "no item was answered")
                return
            try:
                verdict = nights.judge(found, self._rule)
            except Exception as error:  # the nights after this one are still judged
                _log.exception("evals: the night of %s of %s cannot be judged", run.night, run.model)
                await self._store(connection, run, None, f"the judge failed: {error!r}")
                return
            await self._store(connection, run, verdict, "")

    async def _store(self, connection: Connection, run: Run, verdict: NightVerdict | None, reason: str) -> None:
        night, pool = run.night, run.pool or ""
        assert night is not None
        decision = Decision.INCONCLUSIVE if verdict is None else Decision(verdict.decision.value)
        release_id = None
        if verdict is not None and verdict.failed:
            release_id = await self._suspect(connection, run.model, pool, night, verdict)
        slices = () if verdict is None else verdict.slices
        await connection.execute(
            _STORE,
            run.id,
            run.model,
            pool,
            night,
            decision.value,
            reason if verdict is None else verdict.reason,
            None if verdict is None else verdict.version_since,
            [] if verdict is None else list(verdict.changed),
            msgspec.json.encode(slices).decode(),
            release_id,
        )
        if verdict is None:
            _log.warning("evals: the night of %s decided nothing of %s: %s", night, run.model, reason)
            return
        log = _log.error if verdict.failed else _log.info
        log("evals: the night of %s of %s: %s: %s", night, run.model, decision.value, verdict.reason)
        if verdict.failed:
            rolled_back = await self._roll_back(connection, release_id, night, verdict)
            await _emit(connection, run, verdict, release_id, rolled_back)

    async def _suspect(
        self, connection: Connection, model: str, pool: str, night: date, verdict: NightVerdict
    ) -> UUID | None:
        """The release whose promotion made the change that the night found. A rollback would not undo a change that
        came after the promotion."""
        found = await rows.suspect(connection, model, pool, night, self._rule.version_nights)
        if found is None:
            return None
        release_id, baseline_pool = found
        return release_id if nights.change_of("pool", baseline_pool, pool) in verdict.changed else None

    async def _roll_back(
        self, connection: Connection, release_id: UUID | None, night: date, verdict: NightVerdict
    ) -> bool:
        """Undo the promotion if the settings allow it and the previous version was better; returns whether it did."""
        worse = [one.slice for one in verdict.failed if one.against is nights.Against.VERSION_BEFORE]
        if release_id is None or not worse or not self._planner.automatic_rollback:
            return False
        reason = f"the night of {night} found it worse than the version before: {', '.join(worse)}"
        try:
            async with connection.transaction():
                release = await releases.locked(connection, release_id)
                assert release is not None
                await releases.step(connection, release, Event.ROLL_BACK, reason=reason, actor=ACTOR, by=ACTOR.name)
        except SlipstreamError as error:
            _log.error("evals: release %s cannot be rolled back: %s", release_id, error)
            return False
        return True


async def _nights(connection: Connection, run: Run, rule: NightRule) -> list[Night]:
    """The run's night and the finished ones before it, as far back as the rule looks, the oldest first."""
    most = rule.history_nights + rule.version_nights + max(rule.windows)
    assert run.night is not None
    ids: dict[UUID, tuple[date, str | None]] = {run.id: (run.night, await connection.fetchval(_VERSION, run.id))}
    for row in await connection.fetch(_EARLIER, run.model, run.night, most):
        ids[row["id"]] = row["night"], row["version"]
    slices: dict[UUID, dict[str, SliceNight]] = {each: {} for each in ids}
    for row in await connection.fetch(_ITEMS, list(ids)):
        scored = zip(row["seeds"], row["clusters"], row["scores"], strict=True)
        items = {seed: (cluster, score) for seed, cluster, score in scored}
        slices[row["run_id"]][row["slice"]] = SliceNight(row["slice_version"] or "", items)
    found = [
        Night(night=night, version=_version(version), slices=slices[each]) for each, (night, version) in ids.items()
    ]
    return sorted(found, key=lambda each: each.night)


def _version(text: str | None) -> Mapping[str, str]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])


def _why_unfinished(run: Run) -> str:
    answered = f"{run.answered} of {run.items} items were answered"
    return f"the run did not finish: {run.error or run.status.value}; {answered}"


async def _emit(
    connection: Connection, run: Run, verdict: NightVerdict, release_id: UUID | None, rolled_back: bool
) -> None:
    """Notify the operating organization's webhooks, once."""
    operator: UUID | None = await connection.fetchval(_OPERATOR)
    if operator is None:
        return
    data = {
        "model": run.model,
        "pool": run.pool,
        "night": run.night,
        "run_id": run.id,
        "reason": verdict.reason,
        "changed": verdict.changed,
        "version_since": verdict.version_since,
        "slices": [
            {"slice": one.slice, "difference": one.difference, "items": one.items, "reason": one.reason}
            for one in verdict.failed
        ],
        "release_id": release_id,
        "rolled_back": rolled_back,
    }
    await emit(connection, operator, EventType.NIGHT_FAILED, data, f"night:{run.id}")
