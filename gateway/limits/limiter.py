"""Reserves an upper bound before a request runs and settles it to the exact usage, across all gateways.

Valkey counts (reserve.lua). This module decides which rules count a request and what happens without an answer, and
sends the heartbeat that keeps a gateway's reservations. A budget's spending is known after its count (counting.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NoReturn

import hiredis

from contracts.background_task import BackgroundTask
from contracts.errors import BudgetUnavailable, InternalError, LimiterUnavailable
from contracts.generation import Caller, Tier
from gateway.limits import retirement
from gateway.limits.budget_thresholds import BudgetThresholds
from gateway.limits.config import LimitsConfig
from gateway.limits.cost import Cost
from gateway.limits.counter_snapshot import CounterSnapshot, counters_of
from gateway.limits.counting import STORE_FAILURES, Counting, Round
from gateway.limits.epoch import new_epoch
from gateway.limits.levels import Levels, Rule
from gateway.limits.local import RUNNING_WAIT_MS, LocalLimiter
from gateway.limits.metrics import LOCAL, NORMAL, REFUSING, LimitsMetrics
from gateway.limits.plan import COUNTERS, MONEY, Decision, Plan, Status, plan_of, planned, prefix_of
from gateway.limits.rate_state import RateState
from gateway.limits.refusal import refused, too_expensive
from gateway.limits.reservations import OpenReservations, Reservation
from gateway.limits.script import Calls, Script, decision
from gateway.limits.settlements import Settlements
from gateway.limits.spending import Spending
from storage.engine import FAILURES
from storage.valkey import CallTimeout, ConnectionLost, Valkey, ignored

PLANS_KEPT = 10_000
BEATS_PER_LEASE = 3
DRAIN_S = 2.0
COUNTS_PER_REQUEST = 3
_NOTHING = Cost()

logger = logging.getLogger(__name__)


class Limiter:
    """The limiter of one gateway process."""

    def __init__(
        self,
        url: str,
        config: LimitsConfig,
        metrics: LimitsMetrics,
        *,
        instance: str,
        spending: Spending,
        drain: Callable[[float], Awaitable[bool]],
        currency: str,
    ) -> None:
        """url: see storage.valkey. instance: the gateway's name, stable across restarts. spending: the ledger.

        drain: returns True once all present records of this gateway's journal are in the ledger. currency: the currency
        of budgets, for refusals. Raises ConfigError for an invalid url.
        """
        self._config = config
        self._metrics = metrics
        lease_ms, tomb_ms = round(config.lease_s * 1_000), round(config.record_s * 1_000)
        self._epoch = new_epoch(instance)
        self._script = Script(self._epoch.name, lease_ms, tomb_ms, sorted(config.budget_percents))
        self._valkey = Valkey(url, config.call_timeout_s, scripts=self._script.loads, identify=True)
        self._valkey.on_change = self._on_change
        self._spending = spending
        self._drain = drain
        self._currency = currency
        self._counting = Counting(
            self._valkey, self._script, config, metrics, spending, self._epoch, self._prepare_round, drain
        )
        self._crossings = BudgetThresholds(self._valkey, self._script, spending, metrics)
        self._settlements = Settlements(
            self._valkey,
            config.max_delayed_settlements,
            config.record_s,
            metrics,
            self._crossings.reported,
        )
        self._local = LocalLimiter(lease_ms, tomb_ms)
        self._local_money: set[str] = set()
        """Keys of budgets with spending without Valkey."""
        self._plans: dict[Tier, dict[str, Calls | None]] = {tier: {} for tier in Tier}
        self._open = OpenReservations(self._valkey, self._script, self._epoch, config.key_prefix, metrics)
        self._strays: set[str] = set()
        """Reservations that the last search found open in Valkey, but in no gateway."""
        self._interval_s = config.lease_s / BEATS_PER_LEASE
        self._tasks = (
            BackgroundTask("limits-earlier-runs", self._end_earlier_runs),
            BackgroundTask.every(config.stray_s, self._look_for_strays, "limits-strays"),
            BackgroundTask.every(self._interval_s, self.heartbeat, "limits-heartbeat"),
        )
        self._show_mode(connected=False)

    async def start(self) -> None:
        """Connect. A start without Valkey succeeds; limited requests are then treated by `when_unavailable`."""
        await self._valkey.start()
        self._counting.start()
        for task in self._tasks:
            task.start()

    async def stop(self) -> None:
        """Give settlements two seconds to arrive, then close. Open reservations lapse, their money when reconciled."""
        await self._counting.stop()
        for task in self._tasks:
            await task.stop()
        try:
            await asyncio.wait_for(self._settlements.drain(), DRAIN_S)
        except TimeoutError:
            logger.warning("stopped with settlements that did not reach Valkey")
        self._settlements.close()
        await self._crossings.stop()
        self._valkey.on_change = ignored  # a stop is no lost connection
        await self._valkey.stop()
        self._settlements.close()  # settlements that ended with the connection

    @property
    def connected(self) -> bool:
        """Whether Valkey counts limits at the moment."""
        return self._valkey.connected

    async def wait_connected(self) -> None:
        """Return once Valkey counts limits, money included."""
        await self._valkey.wait_ready()
        await self._counting.wait_joined()

    async def drain(self) -> None:
        """Return once every settlement so far is in Valkey, or given up."""
        await self._settlements.drain()

    async def reserve(self, reservation_id: str, caller: Caller, tier: Tier, levels: Levels, cost: Cost) -> Reservation:
        """Take one request, its tokens, one slot and its money from every rule, or nothing at all. cost: the upper
        bound of all choices.

        An id reserves once, however often it is used. A key without limits costs nothing. Cancelling gives everything
        back. Raises LimitReached or BudgetReached (waiting helps), RequestTooExpensive or InsufficientQuota (it does
        not), LimiterUnavailable, BudgetUnavailable.
        """
        calls = self._calls(levels, tier) if levels.identity else None
        if calls is None:
            unlimited = self._open.unlimited[reservation_id] = Reservation(reservation_id, caller, tier, cost)
            if caller.organization_id in self._open.fresh:
                self._open.catch_up(unlimited)
            return unlimited
        if not calls.fits(cost):  # needs no counting, and no answer from Valkey could change it
            self._refuse_too_expensive(calls.plan, cost)
        if calls.has_money and cost.micro and not self._counting.joined:
            self._refuse_money()
        started_s = time.perf_counter()
        for _ in range(COUNTS_PER_REQUEST):
            decided = await self._ask(calls, reservation_id, cost) if self._valkey.connected else None
            if decided is None:
                return self._reserve_without_valkey(reservation_id, caller, tier, levels, cost, calls)
            if decided.status is not Status.UNSEEDED:
                self._metrics.reserve_seconds.observe(time.perf_counter() - started_s)
                return self._conclude(Reservation(reservation_id, caller, tier, cost, None, calls), calls.plan, decided)
            if not await self._counting.count(calls.plan.money_rules):
                break
        return self._refuse_money()

    async def settle(self, reservation: Reservation, used: Cost, *, refund_request: bool = False) -> None:
        """Correct a reservation to the `used` cost, give back the rest and free its slot.

        refund_request: whether to give back the request, too, because nothing ran. Settling again has no effect.
        Returns once Valkey has the settlement, so that the client's next request finds the slot free at every gateway;
        without Valkey at once, with retries in the background. Never raises.
        """
        calls = reservation.calls
        if calls is None:
            self._open.unlimited.pop(reservation.id, None)
            return
        self._open.remove(reservation)
        requests = 0 if refund_request else 1
        if reservation.local is not None:
            self._local.settle(_now_ms(), reservation.local, reservation.id, requests, used)
            if not self._valkey.connected:
                return  # Valkey does not know the reservation
            if used.micro:  # nor of this money, unless it was announced since
                self._doubt([rule.key for rule in calls.plan.money_rules])
        await self._settlements.settle(calls.settle(reservation.id, requests, used), calls.plan)

    async def standing(self, organization_id: str, rules: Sequence[Rule]) -> tuple[list[CounterSnapshot], bool]:
        """The present counters of these rules, and whether all of their money is counted. Raises LimiterUnavailable."""
        tagged = prefix_of(self._config.key_prefix, organization_id)
        plan = Plan(organization_id, tagged, tuple(planned(tagged, rule) for rule in rules))
        counted, look = not plan.money_rules, Calls(self._script, plan).look()
        try:
            if not counted:
                await self._valkey.call(look)  # a budget that was set again has to be counted again
                counted = await self._counting.count(plan.money_rules)
            decided = decision(await self._valkey.call(look))
        except STORE_FAILURES:
            raise LimiterUnavailable(
                "Limits cannot be read at the moment. Try again shortly.", retry_after_s=1.0
            ) from None
        return counters_of(RateState(plan, decided.left, decided.now_ms)), counted

    async def adopted(self, instance: str) -> bool:
        """Like `reconciled`, but recounts also no longer wait for the instance, whose journal has been shipped. It must
        not return meanwhile."""
        return await self.reconciled(instance) and await self.left_empty(instance)

    async def left_empty(self, instance: str) -> bool:
        """Record that `instance` writes no more, and that all of its records are in the ledger. Never raises. False if
        the database did not answer."""
        try:
            await self._spending.leave(instance)
        except FAILURES as error:
            logger.warning("counts of budgets still wait for gateway %s: %r", instance, error)
            return False
        return True

    async def reconciled(self, instance: str) -> bool:
        """End the open reservations of `instance`'s earlier runs, whose attempts are all in the ledger, and recount.

        Never raises. False if Valkey did not answer: the money counts as spent until another call.
        """
        try:
            ended = await retirement.end_runs(
                self._valkey, self._script, self._config.key_prefix, instance, self._epoch.name
            )
        except (*STORE_FAILURES, *FAILURES) as error:
            logger.warning("reservations of %s's earlier runs are not reconciled yet: %r", instance, error)
            return False
        self._metrics.retired.inc(ended)
        return True

    def heartbeat(self) -> None:
        """Keep this run alive in every organization in which it has open reservations."""
        now_ms = _now_ms()
        self._local.beat(now_ms, self._epoch.name)
        self._local.sweep(now_ms)
        self._open.beat()

    async def _ask(self, calls: Calls, reservation_id: str, cost: Cost) -> Decision | None:
        """Valkey's decision; None if it gave none in time. A reservation that it may have made anyway is given back."""
        command = calls.reserve(reservation_id, cost)
        try:
            self._open.note(calls.plan.organization_id)
            reply = await self._valkey.call(command)
        except (ConnectionLost, CallTimeout, hiredis.ReplyError) as error:
            logger.debug("no decision for %s: %r", reservation_id, error)
            self._settlements.post(calls.settle(reservation_id, 0, _NOTHING), calls.plan)
            return None
        except asyncio.CancelledError:
            self._settlements.post(calls.settle(reservation_id, 0, _NOTHING), calls.plan)
            raise
        return decision(reply)

    def _reserve_without_valkey(
        self, reservation_id: str, caller: Caller, tier: Tier, levels: Levels, cost: Cost, calls: Calls
    ) -> Reservation:
        config = self._config
        if config.when_unavailable == "refuse":
            self._metrics.unavailable.labels("refused").inc()
            raise LimiterUnavailable("Limits cannot be counted at the moment. Try again shortly.", retry_after_s=1.0)
        plan = plan_of(
            config.key_prefix, levels, tier, share=config.expected_instances, money_percent=config.local_money_percent
        )
        assert plan is not None
        if plan.too_expensive(cost) is not None:
            # It fits the whole limit, which applies again with Valkey, but not this instance's share.
            self._metrics.unavailable.labels("refused").inc()
            raise LimiterUnavailable(
                "Limits are counted locally at the moment, and this request is larger than the local share. "
                "Try again shortly, or with fewer tokens.",
                retry_after_s=1.0,
            )
        self._metrics.unavailable.labels("local").inc()
        decided = self._local.reserve(_now_ms(), plan, self._epoch.name, reservation_id, cost)
        reservation = self._conclude(Reservation(reservation_id, caller, tier, cost, None, calls, plan), plan, decided)
        if cost.micro:
            self._local_money.update(rule.key for rule in plan.money_rules)
        return reservation

    def _conclude(self, reservation: Reservation, plan: Plan, decided: Decision) -> Reservation:
        if decided.status is Status.ADMITTED:
            self._metrics.admitted.inc()
            reservation.state = RateState(plan, decided.left, decided.now_ms)
            self._open.add(reservation, plan.organization_id)
            return reservation
        if decided.status is Status.SETTLED:
            raise InternalError(f"reservation {reservation.id} was settled before it was made; use each id once")
        rule = plan.rules[decided.rule - 1]
        self._metrics.decisions.labels("refused", rule.level.value, COUNTERS[decided.counter - 1].value).inc()
        # Money that only running requests hold may be back in a moment, and a local share is not the budget.
        if decided.counter - 1 == MONEY and decided.wait_ms > RUNNING_WAIT_MS and reservation.local is None:
            self._crossings.refused(plan, decided)
        raise refused(plan, decided, reservation.cost, self._currency)

    def _refuse_money(self) -> NoReturn:
        self._metrics.unseeded.inc()
        raise BudgetUnavailable(
            "The budget's spending is being counted. Try again shortly.",
            retry_after_s=self._config.seed_wait_s or 1.0,
        )

    def _refuse_too_expensive(self, plan: Plan, cost: Cost) -> NoReturn:
        found = plan.too_expensive(cost)
        assert found is not None
        rule, position = found
        self._metrics.decisions.labels("too_expensive", rule.level.value, COUNTERS[position].value).inc()
        raise too_expensive(rule, position, cost, self._currency)

    def _calls(self, levels: Levels, tier: Tier) -> Calls | None:
        plans = self._plans[tier]
        try:
            return plans[levels.identity]
        except KeyError:
            if len(plans) >= PLANS_KEPT:
                plans.clear()
            plan = plan_of(self._config.key_prefix, levels, tier)
            calls = plans[levels.identity] = Calls(self._script, plan) if plan is not None else None
            return calls

    async def _prepare_round(self, rounds: Sequence[Round]) -> None:
        """Prepare this gateway for a recount of some budgets: bring every earlier settlement to Valkey or give it up,
        and count its open reservations. Raises ConnectionLost."""
        await self._settlements.drain()
        self._open.join(rounds)

    def _on_change(self, connected: bool) -> None:
        self._show_mode(connected)
        restarted = connected and self._valkey.incarnation != self._script.incarnation
        self._script.met(self._valkey.incarnation)
        if not connected:
            logger.warning(
                "Valkey is unreachable; limited requests: when_unavailable=%s", self._config.when_unavailable
            )
            return
        logger.info("limits are counted in Valkey")
        self._doubt(self._local_money)
        self._local_money.clear()
        self._open.reconnected(restarted)
        self._settlements.retry()

    def _doubt(self, keys: Collection[str]) -> None:
        """Have these budgets recounted, because Valkey does not know all of their spending."""
        for key in keys:
            try:
                self._valkey.send(self._script.upkeep("unseed", [key]))
            except ConnectionLost:
                return  # a recount follows anyway, after a loss of the store or by the next settlement

    def _show_mode(self, connected: bool) -> None:
        without = LOCAL if self._config.when_unavailable == "local" else REFUSING
        self._metrics.mode.set(NORMAL if connected else without)

    async def _look_for_strays(self) -> None:
        """End reservations that two searches find open in Valkey, but in no gateway. Their settlements were lost:
        dropped after too long, or undone by a store that restarted from older data."""
        try:
            strays = await retirement.open_in(self._valkey, self._config.key_prefix, self._epoch)
            known = self._open.ids()
            now = {name: stray for name, stray in strays.items() if name not in known}
            ended = [stray for name, stray in now.items() if name in self._strays]
            self._strays = set(now)
            if ended and await self._drain(self._interval_s):
                await retirement.end(self._valkey, self._script, ended)
                self._metrics.retired.inc(len(ended))
        except (*STORE_FAILURES, *FAILURES) as error:
            logger.debug("the search for stray reservations failed: %r", error)

    async def _end_earlier_runs(self) -> None:
        """End earlier runs' reservations once their rows are in the ledger."""
        await self._valkey.wait_ready()
        interval_s, instance = self._interval_s, self._epoch.instance
        while not (await self._drain(interval_s) and await self.reconciled(instance)):  # noqa: ASYNC110  servers' state
            await asyncio.sleep(interval_s)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
