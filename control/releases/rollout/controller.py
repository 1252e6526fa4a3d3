"""Advances releases: reads new evidence, calls the judge, and takes one step, all in one transaction for each release.

It may be killed at any point and run in several workers at once: a step's evidence, decision and split are committed
together, under the lock of the release's row.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.desired_state import DesiredState
from control.releases import store
from control.releases.judge import Decision, State, Verdict, least_requests, thresholds_of
from control.releases.machine import Event
from control.releases.machine import State as ReleaseState
from control.releases.release import Release, idle_arm, why_lost
from control.releases.rollout import evidence, gathered
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.evidence import Batch, Draw, Reading, joined
from control.releases.rollout.holder import holder_of
from control.releases.rollout.judging import (
    Rules,
    event_if_running,
    event_of,
    folded,
    folded_steps,
    lacking_copies,
    policy_of,
    rules_of,
    told,
)
from control.releases.rollout.shares import Sessions
from control.releases.store import Evidence

SESSION = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A worker that is stopped in the middle of a step must not block a rollback by hand."""
STANDS_S = 30.0
"""A forgotten transaction holds a horizon that does not move for this long while evidence waits."""
BASELINE_EVERY_S = 20.0
"""Interval of checks for the baseline's requests, while a release waits for enough of them."""
STEPS_AT_ONCE = 500
"""Steps that a worker without a release's state reads and folds at a time; each holds up to a megabyte."""
COPIED = (
    "this database is a copy of the one whose requests were counted, so the counted ones are unknown; start the "
    "release again"
)

logger = logging.getLogger(__name__)


class Known(msgspec.Struct, frozen=True):
    """The state that a release's steps add up to."""

    step: int = 0
    """The last step that was folded."""
    state: State = State()
    sessions: Sessions = Sessions()


class Controller:
    """The controller of one worker process. It keeps the judges' states in memory only, and folds them from the steps
    if it has none or another worker took some."""

    def __init__(self, config: ReleasesConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic, in seconds."""
        self._config = config
        self._clock = clock
        self._states: dict[UUID, Known] = {}
        """States by release."""
        self._looked_at: dict[UUID, float] = {}
        self._horizon = (0, 0.0)
        """The last horizon, and the clock's time when it was first seen."""
        self.blind_s: dict[UUID, float] = {}
        """By release, how long the horizon has blocked evidence, once that reaches STANDS_S."""

    async def tick(self, connection: asyncpg.Connection[Any]) -> int:
        """Take every step that is possible now; returns their number. Raises FAILURES of the database.

        A release that fails, because of a defect or a concurrent change, does not stop the others.
        """
        running = await store.running(connection)
        taken = 0
        for release_id in running:
            try:
                moved = await self._step(connection, release_id)
            except Exception:
                if connection.is_closed():
                    raise
                logger.exception("release %s: a step failed; retrying", release_id)
                continue
            if moved is not None:
                taken += 1
                logger.info(
                    "release %s of %s is %s at %g: %s", moved.id, moved.model, moved.state, moved.share, moved.reason
                )
        self._forget(running)
        async with connection.transaction():
            await connection.execute(SESSION)
            version = await store.sweep(connection, await store.fleet(connection))
        if version is not None:
            logger.warning("desired state %d: a split was removed whose release has ended or is gone", version)
        return taken

    async def _step(self, connection: asyncpg.Connection[Any], release_id: UUID) -> Release | None:
        """Take one step of a release; returns the release after it, None if no step is possible."""
        async with connection.transaction():
            await connection.execute(SESSION)
            release = await store.locked(connection, release_id, skip=True)
            if release is None or release.state.ended:
                return None
            fleet = await store.fleet(connection)
            lost = why_lost(fleet, release)
            if lost is not None:
                return await store.step(connection, release, Event.LOST, reason=lost)
            if release.state is ReleaseState.WAITING:
                return await self._begin(connection, release, fleet)
            model = fleet.model(release.model)
            assert model is not None
            assert model.canary is not None  # or it would be lost
            moved, known = await self._judged(connection, release, model.canary.salt)
        if known is not None:  # committed
            self._states[release_id] = known
        return moved

    async def _begin(
        self, connection: asyncpg.Connection[Any], release: Release, fleet: DesiredState
    ) -> Release | None:
        """Fix the policy and the thresholds once the baseline has served enough requests."""
        if idle := idle_arm(fleet, release):
            await store.tell(connection, release, f"waiting to begin: no replica of the pool {idle!r} takes load")
            return None
        now, config = self._clock(), self._config
        if now - self._looked_at.get(release.id, -BASELINE_EVERY_S) < BASELINE_EVERY_S:
            return None
        self._looked_at[release.id] = now
        policy = policy_of(release)
        days, least = config.baseline_days, least_requests(policy)
        most = max(config.baseline_requests, 2 * least)  # equal numbers of many organizations round down by up to half
        ttft_ms, itl_ms, share = await evidence.baseline(
            connection,
            release,
            days=days,
            most=most,
            share=config.organization_share,
            least=least,
        )
        if not ttft_ms:
            missing = f"the pool {release.baseline_pool!r} answered nothing for {release.model!r} in {days} days"
            await store.tell(connection, release, f"waiting to begin: {missing}")
            return None
        try:
            thresholds = thresholds_of(policy, ttft_ms, itl_ms)
        except ValueError as error:
            await store.tell(connection, release, f"waiting to begin: {error}")
            return None
        return await store.step(
            connection,
            release,
            Event.BEGIN,
            reason=f"the thresholds are fixed by {len(ttft_ms)} requests of the baseline",
            policy=msgspec.json.encode(policy).decode(),
            thresholds=msgspec.json.encode(thresholds).decode(),
            organization_share=share,
            watermark=await evidence.horizon(connection),
            comparison_id=await gathered.queue_slices(connection, release, policy),
        )

    async def _judged(
        self, connection: asyncpg.Connection[Any], release: Release, secret: str
    ) -> tuple[Release | None, Known | None]:
        """Take a step by the judge's verdict; returns the release and its state after it. secret: see `Draw`."""
        assert release.watermark is not None
        end = await evidence.horizon(connection)
        if end < release.watermark:
            return await store.step(connection, release, Event.LOST, reason=COPIED), None
        rules = rules_of(release)
        known = await self._known(connection, release, rules)
        before = known.state
        draw = Draw(
            most=self._config.requests_per_step,
            sessions=known.sessions,
            share=1.0 if release.organization_share is None else release.organization_share,
            secret=secret,
        )
        reading = await evidence.read(connection, release, end, draw)
        slices = await gathered.slices_said(connection, release, before)
        votes = await gathered.votes_cast(connection, release, before)
        copies = await gathered.copies(connection, release, end)
        batch = Batch(reading.observations, slices, *votes, reading.organizations, copies)
        state = folded(before, rules, release.traffic_stage, batch)
        verdict, text = told(state, rules)
        event, reason = await self._event(connection, release, state, verdict)
        if reading.left_out and event is Event.OBSERVE:
            reason += f"; {reading.left_out} sessions beyond one organization's {draw.share:.0%} were left out"
        sessions = known.sessions.joined_by(batch.observations, batch.organizations)
        found = await self._early(connection, release, end, msgspec.structs.replace(draw, sessions=sessions))
        if found is not None and event is not Event.FAIL:
            # Only harm: a release that is rolled back has ended, so it reads no evidence twice.
            visible = joined(batch, found)
            with_early = folded(before, rules, release.traffic_stage, visible)
            harm, harm_text = told(with_early, rules)
            if harm.decision is Decision.ROLL_BACK:
                state, batch, text, event, reason = with_early, visible, harm_text, Event.FAIL, harm.reason
                reading = msgspec.structs.replace(reading, sampled=min(reading.sampled, found.sampled))
            elif event is Event.OBSERVE:
                who = await holder_of(connection, end)
                reason = f"it is judged for harm only, because {who} keeps newer requests from being counted; {reason}"
        if event is Event.OBSERVE and not batch.holds_something:
            skipped = {"watermark": reading.watermark} if reading.left_out else {}
            await store.tell(connection, release, reason, **skipped)
            return None, None
        consumed = Evidence(
            packed=evidence.packed(batch),
            requests=len(batch.observations),
            sampled=reading.sampled,
            watermark=reading.watermark,
        )
        moved = await store.step(connection, release, event, reason=reason, evidence=consumed, verdict=text)
        sessions = known.sessions.joined_by(batch.observations, batch.organizations)
        return moved, Known(moved.step, state, sessions)

    async def _early(
        self, connection: asyncpg.Connection[Any], release: Release, end: int, draw: Draw
    ) -> Reading | None:
        """The evidence beyond a horizon that does not move; None if the horizon moves or there is none."""
        self.blind_s.pop(release.id, None)
        now = self._clock()
        if end != self._horizon[0]:
            self._horizon = (end, now)
        stands_s = now - self._horizon[1]
        if stands_s < STANDS_S or release.traffic_stage < 0:
            return None
        found = await evidence.early(connection, release, end, draw)
        if not found.observations:
            return None
        self.blind_s[release.id] = stands_s
        return found

    async def _event(
        self, connection: asyncpg.Connection[Any], release: Release, state: State, verdict: Verdict
    ) -> tuple[Event, str]:
        """The event of a verdict for a release at its place, and the reason."""
        event, reason = event_if_running(release, state, verdict), verdict.reason
        if event is Event.ADVANCE:  # the judge counts only stages that serve customers; people count all, from 1
            place = f"stage {release.stage + 1} of {len(release.stages)} ({100 * release.share:.4g} %)"
            reason = f"{place} has the evidence it needs, and none is against the candidate"
        if release.in_shadow and event is not Event.FAIL:
            missing = await gathered.slices_wait_for(connection, release, state)
            if lacking := lacking_copies(release, state):
                missing = f"{lacking} more copies of requests that both sides answered"
            reason = f"missing: {missing}" if missing else "the shadow stage has the evidence it needs"
        if (held := event_of(release, state, verdict)) is not event:
            reason = f"held; otherwise: {reason}"
        return held, reason

    async def _known(self, connection: asyncpg.Connection[Any], release: Release, rules: Rules) -> Known:
        """The state that all the release's steps add up to."""
        known = self._states.get(release.id, Known())
        if known.step > release.step:  # from before the database was restored
            known = Known()
        while known.step < release.step:
            rows = await store.steps_of(connection, release.id, behind=known.step, most=STEPS_AT_ONCE)
            batches = [evidence.unpacked(row["evidence"]) for row in rows]
            new: Counter[str] = Counter()
            for batch in batches:
                new.update(batch.organizations)
            known = self._states[release.id] = Known(
                rows[-1]["step"],
                folded_steps(known.state, rules, release, list(zip(rows, batches, strict=True))),
                known.sessions.joined_by(itertools.chain.from_iterable(each.observations for each in batches), new),
            )
        return known

    def _forget(self, running: list[UUID]) -> None:
        for ended in (self._states.keys() | self._looked_at.keys()) - set(running):
            self._states.pop(ended, None)
            self._looked_at.pop(ended, None)
        for ended in self.blind_s.keys() - set(running):
            del self.blind_s[ended]
