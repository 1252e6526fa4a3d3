"""The standing of objectives: the requests that kept them in each window of the budgets and burn rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Select, and_, func, or_, select
from sqlalchemy.sql.expression import literal_column

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import Objective
from control.slo.budget import PAIRS, WINDOWS, BurnPair, Count, budget_left, burn_rate, burning, too_few
from control.slo.tables import slo_roll_up_runs
from control.slo.totals import totals

Class = tuple[Tier, LengthClass]
Counts = dict[Class, dict[str, Count]]
"""Counts by class, then by window's name."""
_NUMBERS = ("counted", "good", "over_share")

LAST_RUN = select(func.max(slo_roll_up_runs.c.started_at))


def window_counts(end: datetime, since: Mapping[Class, datetime], **of: object) -> Select[Any]:
    """Rows of tier, length, and `_NUMBERS` for each window before `end`, a whole minute.

    since: by class, the start of all windows: earlier requests were judged by other figures.
    of: columns of `gateway.slo_minutes` and their values, or None for any.
    """
    wanted = {name: value for name, value in of.items() if value is not None}
    begins = [end - window for window in WINDOWS.values()]
    changed = {each: at for each, at in since.items() if begins[-1] < at < end}
    rows = totals([*begins, *changed.values(), end], {"tier", "length", *wanted}).c
    by_others: list[ColumnElement[bool]] = [
        and_(rows.tier == tier.value, rows.length == length.value, rows.at < at)
        for (tier, length), at in since.items()
        if begins[-1] < at
    ]
    numbers = [
        func.coalesce(func.sum(rows[name]).filter(rows.at >= begin), literal_column("0")).cast(BigInteger)
        for begin in begins
        for name in _NUMBERS
    ]
    conditions = (rows[name] == value for name, value in wanted.items())
    judged = (~or_(*by_others),) if by_others else ()
    return select(rows.tier, rows.length, *numbers).where(*conditions, *judged).group_by(rows.tier, rows.length)


def counts_of(rows: Iterable[Iterable[Any]]) -> Counts:
    """The rows of `window_counts` as they count for the requests' organizations."""
    found: Counts = {}
    for row in rows:
        tier, length, *numbers = row
        each = [Count(*numbers[at : at + len(_NUMBERS)]) for at in range(0, len(numbers), len(_NUMBERS))]
        found[Tier(tier), LengthClass(length)] = dict(zip(WINDOWS, each, strict=True))
    return found


def for_deployment(counts: Counts) -> Counts:
    """The counts for the deployment, which did not fail organizations that exceeded their share."""
    return {
        key: {name: Count(each.counted - each.over_share, each.good, each.over_share) for name, each in windows.items()}
        for key, windows in counts.items()
    }


def end_of(last_run: datetime) -> datetime:
    """The end of a run's totals: the end of its minute, which was not over yet."""
    return last_run.replace(second=0, microsecond=0) + timedelta(minutes=1)


class Standing(msgspec.Struct, frozen=True):
    """One objective over the windows that end now."""

    objective: Objective
    windows: Mapping[str, Count]

    @property
    def budget(self) -> Count:
        """The counts of the budget's window."""
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

    @property
    def too_few(self) -> tuple[BurnPair, ...]:
        """The pairs that burn too fast by so few bad requests that they are no alert, the fastest first."""
        return tuple(pair for pair in PAIRS if too_few(pair, self.windows, self.objective.target))


def standings(objectives: Iterable[Objective], counts: Counts) -> list[Standing]:
    """The standing of each objective; without requests, all its counts are 0."""
    none = dict.fromkeys(WINDOWS, Count(0, 0))
    return [Standing(each, counts.get((each.tier, each.length), none)) for each in objectives]
