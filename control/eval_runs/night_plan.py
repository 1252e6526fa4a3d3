"""Plans nights: their times, models and slices, and each model's version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg

from contracts.desired_state import DesiredState, Model
from contracts.errors import InvalidField
from control.eval_runs import nights
from control.eval_runs.config import EvalsConfig
from control.evals import store
from control.evals.target import target_of, version_of
from control.fleet.revision import newest
from storage.audit_log import Actor, Change, record
from storage.calendar import midnight

if TYPE_CHECKING:
    from celery.schedules import crontab

Connection: TypeAlias = "asyncpg.Connection[Any]"

ACTOR = Actor.system("slipstream worker")
YOUNG = timedelta(hours=6)
"""The least age of a deployment for nightly evals, so that they disturb neither trials nor tests."""
FOREIGN_DRIVER = "openai"
"""This driver's engines may be another provider's, where each question costs money."""
CLOCKS_DIFFER = timedelta(minutes=1)
"""How far a worker's clock may be behind the scheduler's."""
_MAX_DAYS = 4 * 366
"""A crontab time such as 29 February comes within this many days."""
_OLDEST = "SELECT min(created_at) FROM gateway.desired_states"


class NightPlanner:
    """The planner of one worker process. own_slices: by model, its informative slices, if the settings name none.
    engines_of: by a pool's name, its engines' start options, for the version."""

    def __init__(
        self,
        config: EvalsConfig,
        own_slices: Mapping[str, tuple[str, ...]],
        engines_of: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._config = config
        self._own_slices = own_slices
        self._engines_of = engines_of

    @property
    def automatic_rollback(self) -> bool:
        """Whether a night that fails after a promotion undoes it."""
        return self._config.automatic_rollback

    async def queue(self, connection: Connection, night: date) -> list[UUID]:
        """Queue a run of every model that has slices, on its own pool, once per night however often this is called;
        returns the runs queued now. Raises ConfigError for slices that cannot be read."""
        state = (await newest(connection)).state
        queued = []
        for model, names in self._slices(state).items():
            target = target_of(state, model, None)
            run_id = await store.queue_night(
                connection,
                model=model,
                pool=target.pool,
                slices=dict.fromkeys(names, self._config.items),
                night=night,
                version=version_of(state, target, self._engines_of(target.pool)),
            )
            if run_id is not None:
                made = await store.run(connection, run_id)
                change = Change(action="eval.run", subject_id=str(run_id), organization_id=None, after=made)
                await record(connection, ACTOR, change)
                queued.append(run_id)
        return queued

    def night_at(self, now: datetime) -> date:
        """The night of a task that runs now: the date of its scheduled moment. The task may have waited past midnight,
        or its clock may be behind; the date of `now` would then be another night's."""
        when = self._config.crontab()
        moment = None if when is None else next(moments(when, now + CLOCKS_DIFFER, -1), None)
        return (moment or now).date()

    async def is_young(self, connection: Connection, now: datetime) -> bool:
        """Whether the deployment is too young for a night."""
        oldest: datetime | None = await connection.fetchval(_OLDEST)
        return oldest is None or now < oldest + YOUNG

    async def report(self, connection: Connection, now: datetime) -> frozenset[str]:
        """Store this worker's settings for the admin API; returns the names of all models."""
        when = self._config.crontab()
        oldest: datetime | None = await connection.fetchval(_OLDEST)
        first = (oldest or now) + YOUNG
        state = (await newest(connection)).state
        await nights.report(
            connection,
            schedule=self._config.schedule,
            previous_at=None if when is None else next((at for at in moments(when, now, -1) if at >= first), None),
            next_at=None if when is None else next(moments(when, max(now, first), 1), None),
            items=self._config.items,
            slices=self._slices(state),
            automatic_rollback=self._config.automatic_rollback,
        )
        return frozenset(model.name for model in state.models)

    def _slices(self, state: DesiredState) -> dict[str, tuple[str, ...]]:
        found = {}
        for model in state.models:
            if not self._asks(state, model):
                continue
            names = self._slices_of(model)
            try:
                target_of(state, model.name, None)
            except InvalidField:  # its pool serves no clients
                continue
            if names:
                found[model.name] = names
        return found

    def _asks(self, state: DesiredState, model: Model) -> bool:
        if self._config.models:
            return model.name in self._config.models
        pool = state.pool(model.pool)
        return pool is None or pool.driver != FOREIGN_DRIVER

    def _slices_of(self, model: Model) -> tuple[str, ...]:
        fitting = self._config.chosen_for(model.tier)
        if self._config.slices or model.name not in self._own_slices:
            return fitting
        return tuple(name for name in self._own_slices[model.name] if name in fitting)


def moments(when: crontab, start: datetime, step: int) -> Iterator[datetime]:
    """The crontab's moments in UTC: after `start` with a step of 1, at or before it with -1, the nearest first."""
    first = midnight(start.astimezone(UTC))
    times = sorted(((hour, minute) for hour in when.hour for minute in when.minute), reverse=step < 0)
    for days in range(_MAX_DAYS):
        day = first + step * timedelta(days=days)
        if (
            day.month in when.month_of_year
            and day.day in when.day_of_month
            and day.isoweekday() % 7 in when.day_of_week
        ):
            for hour, minute in times:
                moment = day.replace(hour=hour, minute=minute)
                if moment > start if step > 0 else moment <= start:
                    yield moment
