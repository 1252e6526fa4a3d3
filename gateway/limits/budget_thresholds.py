"""Passes on what reserve.lua reports: a budget of which a threshold was reached. At least once until it is recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.db.engine import FAILURES
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import MONEY, Plan, PlannedRule
from gateway.limits.script import Script
from gateway.limits.spending import Crossing, Spending
from gateway.limits.valkey import ConnectionLost, Valkey

logger = logging.getLogger(__name__)


class BudgetThresholds:
    """One per gateway process. Without `spending` a crossing is counted in the metrics only."""

    def __init__(self, valkey: Valkey, script: Script, spending: Spending | None, metrics: LimitsMetrics) -> None:
        self._valkey = valkey
        self._script = script
        self._spending = spending
        self._metrics = metrics
        self._under_way: dict[tuple[str, int, int], asyncio.Task[None]] = {}

    def reported(self, reply: Sequence[int], plan: Plan) -> None:
        """The reply to a settle: 1, then {rule, percent, spent, month} for each budget."""
        for at in range(1, len(reply), 4):
            number, percent, spent_micro, month = reply[at : at + 4]
            rule = plan.rules[number - 1]
            name = (rule.key, month, percent)
            if name not in self._under_way:
                task = asyncio.create_task(self._pass_on(plan.organization_id, rule, percent, spent_micro, month))
                self._under_way[name] = task
                task.add_done_callback(lambda _, name=name: self._under_way.pop(name, None))  # type: ignore[misc]

    async def stop(self) -> None:
        """Give up what is under way: the next settlement reports it again."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(
        self, organization_id: str, rule: PlannedRule, reached: int, spent_micro: int, month: int
    ) -> None:
        # Reached 80 at once: then 50, too. What was recorded before is recorded once.
        percents = [percent for percent in self._script.percents if percent <= reached]
        try:
            for percent in percents:
                crossing = Crossing(
                    organization_id=organization_id,
                    level=rule.level.value,
                    subject_id=rule.subject_id,
                    tier=rule.tier.value if rule.tier else None,
                    month=f"{month // 12}-{month % 12 + 1:02d}",
                    percent=percent,
                    limit_micro=rule.limits[MONEY],
                    spent_micro=spent_micro,
                )
                if self._spending is not None:
                    await self._spending.crossed(crossing)
            self._valkey.send(self._script.upkeep("told", [rule.key], reached, month))
            self._metrics.crossings.labels(str(reached)).inc()
            logger.info("budget of %s: %d %% of %s spent", rule.name, reached, rule.limits[MONEY])
        except ConnectionLost:
            return
        except FAILURES as error:  # the next settlement reports it again
            logger.warning("budget of %s: %d %% reached, not recorded yet: %r", rule.name, reached, error)
