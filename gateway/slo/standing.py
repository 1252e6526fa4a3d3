"""How objectives stand: what was kept in each window that budgets and burn rates look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, DateTime, Select, bindparam, func, select
from sqlalchemy.sql.expression import literal_column

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import Objective
from gateway.slo.budget import BUDGET_WINDOW, PAIRS, WINDOWS, BurnPair, Count, budget_left, burn_rate, burning
from gateway.slo.tables import slo_minutes, slo_roll_up_runs

Class = tuple[Tier, LengthClass]
Counts = dict[Class, dict[str, Count]]
"""By class, then by window's name."""
_END = bindparam("end", type_=DateTime(timezone=True))
_M = slo_minutes.c
_NUMBERS = ("counted", "good", "over_share")

LAST_RUN = select(func.max(slo_roll_up_runs.c.started_at))


def _since(window: timedelta) -> ColumnElement[Any]:
    return _END - literal_column(f"interval '{int(window.total_seconds())} seconds'")


def window_counts(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Rows of tier, length, and `_NUMBERS` for each window before `end` (a parameter, a whole minute)."""
    numbers = [
        func.coalesce(func.sum(_M[name]).filter(_M.minute >= _since(window)), literal_column("0")).cast(BigInteger)
        for window in WINDOWS.values()
        for name in _NUMBERS
    ]
    return (
        select(_M.tier, _M.length, *numbers)
        .where(_M.minute >= _since(BUDGET_WINDOW), _M.minute < _END, *conditions)
        .group_by(_M.tier, _M.length)
    )


def counts_of(rows: Iterable[Iterable[Any]]) -> Counts:
    """What `window_counts` finds, as it counts for the organizations whose requests they are."""
    found: Counts = {}
    for row in rows:
        tier, length, *numbers = row
        each = [Count(*numbers[at : at + len(_NUMBERS)]) for at in range(0, len(numbers), len(_NUMBERS))]
        found[Tier(tier), LengthClass(length)] = dict(zip(WINDOWS, each, strict=True))
    return found


def for_deployment(counts: Counts) -> Counts:
    """The same as it counts for the deployment, which did not fail those who asked for more than their share."""
    return {
        of: {name: Count(each.counted - each.over_share, each.good, each.over_share) for name, each in windows.items()}
        for of, windows in counts.items()
    }


def end_of(last_run: datetime) -> datetime:
    """Until when a run has added up: the end of its minute, which was not over yet."""
    return last_run.replace(second=0, microsecond=0) + timedelta(minutes=1)


class Standing(msgspec.Struct, frozen=True):
    """One objective over the windows that end now."""

    objective: Objective
    windows: Mapping[str, Count]

    @property
    def budget(self) -> Count:
        """Of the budget's window."""
        return self.windows["28d"]

    @property
    def budget_left(self) -> float | None:
        """Part of the error budget that is left."""
        return budget_left(self.budget, self.objective.target)

    @property
    def rates(self) -> dict[str, float | None]:
        """Burn rates, by window's name."""
        return {name: burn_rate(count, self.objective.target) for name, count in self.windows.items()}

    @property
    def burning(self) -> tuple[BurnPair, ...]:
        """The pairs of windows that both burn too fast, the fastest first."""
        return tuple(pair for pair in PAIRS if burning(pair, self.windows, self.objective.target))


def standings(objectives: Iterable[Objective], counts: Counts) -> list[Standing]:
    """One for each objective; of those without requests all counts are 0."""
    none = dict.fromkeys(WINDOWS, Count(0, 0))
    return [Standing(each, counts.get((each.tier, each.length), none)) for each in objectives]
