"""Reports that a budget has reached a threshold, as reserve.lua detects, or has refused its first request. A report is
repeated until it is recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import COUNTERS, MONEY, Decision, Plan, PlannedRule
from gateway.limits.script import Script
from gateway.limits.spending import Crossing, Spending
from storage.engine import FAILURES
from storage.valkey import ConnectionLost, Valkey

REFUSED = -1
"""Replaces the percentage in the name of a refusal's task."""
REFUSED_KEPT = 10_000

logger = logging.getLogger(__name__)


class _Reached(NamedTuple):
    """A reached share of a budget, as reserve.lua reports it. told: the highest share recorded before."""

    rule: int
    percent: int
    spent_micro: int
    month: int
    budget_micro: int
    told: int


class BudgetThresholds:
    """The thresholds of one gateway process."""

    def __init__(self, valkey: Valkey, script: Script, spending: Spending, metrics: LimitsMetrics) -> None:
        self._valkey = valkey
        self._script = script
        self._spending = spending
        self._metrics = metrics
        self._tasks: dict[tuple[str, int, int, int], asyncio.Task[None]] = {}
        self._refused: set[tuple[str, str, int]] = set()
        """Budgets, each with its month and limit, whose refusal this process has reported."""

    def reported(self, reply: Sequence[int], plan: Plan) -> None:
        """Record the shares in a settle's reply, which is 1 and then the fields of a `_Reached` for each budget."""
        for at in range(1, len(reply), 6):
            reached = _Reached(*reply[at : at + 6])
            rule = plan.rules[reached.rule - 1]
            self._begin(
                (rule.key, reached.month, reached.percent, reached.budget_micro),
                self._pass_on(plan.organization_id, rule, reached),
            )

    def refused(self, plan: Plan, decided: Decision) -> None:
        """Report a limit's first refusal for money in a month."""
        rule, limit = plan.rules[decided.rule - 1], plan.rules[decided.rule - 1].limits[MONEY]
        now = datetime.fromtimestamp(decided.now_ms / 1_000, UTC)
        name = (rule.key, f"{now:%Y-%m}", limit)
        if name in self._refused:
            return
        if len(self._refused) >= REFUSED_KEPT:
            self._refused.clear()  # the outbox records a repeated report once
        self._refused.add(name)
        spent_micro = limit - decided.left[len(COUNTERS) * (decided.rule - 1) + MONEY]
        percent = spent_micro * 100 // limit
        crossing = _crossing(plan.organization_id, rule, name[1], percent, spent_micro, limit, refused=True)
        self._begin((rule.key, 0, REFUSED, limit), self._pass_on_refusal(crossing, name))

    def _begin(self, name: tuple[str, int, int, int], work: Coroutine[Any, Any, None]) -> None:
        """Start a task unless one with its name is running."""
        if name in self._tasks:
            work.close()
            return
        task = self._tasks[name] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def stop(self) -> None:
        """Cancel running tasks, because the next settlement reports again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, organization_id: str, rule: PlannedRule, reached: _Reached) -> None:
        # A budget that reaches 80 at once has reached 50, too. Shares up to `told` are recorded already.
        percents = [percent for percent in self._script.percents if reached.told < percent <= reached.percent]
        month, budget_micro = reached.month, reached.budget_micro
        name = f"{month // 12}-{month % 12 + 1:02d}"
        try:
            for percent in percents:
                crossing = _crossing(organization_id, rule, name, percent, reached.spent_micro, budget_micro)
                await self._spending.crossed(crossing)
            self._valkey.send(self._script.upkeep("told", [rule.key], reached.percent, month, budget_micro))
            self._metrics.crossings.labels(str(reached.percent)).inc()
            logger.info("budget of %s: %d %% of %d spent", rule.name, reached.percent, budget_micro)
        except ConnectionLost:
            return
        except FAILURES as error:  # the next settlement reports it again
            logger.warning("budget of %s: %d %% reached, not recorded yet: %r", rule.name, reached.percent, error)

    async def _pass_on_refusal(self, crossing: Crossing, name: tuple[str, str, int]) -> None:
        try:
            await self._spending.crossed(crossing)
        except FAILURES as error:
            self._refused.discard(name)
            logger.warning("budget of %s: a refusal is not recorded yet; the next refusal retries: %r", name[0], error)
            return
        self._metrics.crossings.labels("refused").inc()
        logger.info("budget of %s: a request was refused, %d of %d spent", name[0], crossing.spent_micro, name[2])


def _crossing(
    organization_id: str,
    rule: PlannedRule,
    month: str,
    percent: int,
    spent_micro: int,
    limit_micro: int,
    *,
    refused: bool = False,
) -> Crossing:
    return Crossing(
        organization_id=organization_id,
        level=rule.level.value,
        subject_id=rule.subject_id,
        tier=rule.tier.value if rule.tier else None,
        month=month,
        percent=percent,
        limit_micro=limit_micro,
        spent_micro=spent_micro,
        refused=refused,
    )
