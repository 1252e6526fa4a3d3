"""Applies the scripts' rules to plain dictionaries while Valkey is unreachable.

The module is pure: the time is an argument. It sums the open reservations themselves, while the scripts keep sums.
`tests/gateway/limits/reference.py` adds the store's recount of money, and compares everything with the scripts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from gateway.limits.cost import Cost
from gateway.limits.plan import (
    CONCURRENCY,
    DAY_MS,
    DAY_TOKENS,
    MINUTE_MS,
    MONEY,
    NO_LIMIT,
    Decision,
    Plan,
    PlannedRule,
    Status,
    amounts_of,
)

DAYS_KEPT = 3
LONGEST_LEASE_MS = 300_000
"""Both are the same as in state.lua."""
RUNNING_WAIT_MS = 1_000
"""Retry delay for the client if a running request, whose end is unknown, holds the rest. Same as in reserve.lua."""

T = TypeVar("T", int, tuple[int, int])


class Held(msgspec.Struct):
    """An open reservation. day, month: when it was reserved."""

    epoch: str
    cost: Cost
    day: int
    month: tuple[int, int]


class Account(msgspec.Struct):
    """A rule's state. used: units of the four counters per minute, at `stamp_ms`. days, months: spending by day and
    month, the previous one last. limits: of the newest reserve; empty if unknown."""

    stamp_ms: int
    day: int
    month: tuple[int, int]
    used: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    spent_today: int = 0
    spent_month: int = 0
    days: dict[int, int] = msgspec.field(default_factory=dict)
    months: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)
    limits: tuple[int, ...] = ()


class LocalLimiter:
    """The scripts' verbs, arithmetic and answers; the scripts describe each verb. A new rule has no spending."""

    new_account = Account

    def __init__(self, lease_ms: int, tomb_ms: int) -> None:
        self._lease_ms = lease_ms
        self._tomb_ms = tomb_ms
        self._accounts: dict[str, Account] = {}
        self._open: dict[str, Held] = {}
        self._holders: dict[str, dict[str, Held]] = {}
        """Open reservations by rule."""
        self._epochs: dict[str, int] = {}
        self._tombs: dict[str, int] = {}

    def reserve(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> Decision:
        """Take the cost in all rules or in none."""
        amounts = amounts_of(1, cost)
        pairs = [(rule, self._refilled(now_ms, rule)) for rule in plan.rules]
        left = [self._left(now_ms, rule, account, epoch) for rule, account in pairs]

        def answer(status: Status, rule: int = 0, counter: int = 0, wait_ms: int = 0) -> Decision:
            return Decision(status, rule, counter, wait_ms, now_ms, tuple(each for numbers in left for each in numbers))

        if reservation_id in self._open:
            return answer(Status.ADMITTED)
        if self._tombs.get(reservation_id, now_ms) > now_ms:
            return answer(Status.SETTLED)
        waits = [
            (_wait_ms(now_ms, rule, account, counter, amounts[counter], left[index][counter]), index + 1, counter)
            for index, (rule, account) in enumerate(pairs)
            for counter in range(7)
        ]
        longest_ms = max(wait_ms for wait_ms, _, _ in waits)
        if longest_ms > 0:
            _, number, counter = next(wait for wait in waits if wait[0] == longest_ms)
            return answer(Status.REFUSED, number, counter + 1, longest_ms)
        held = self._open[reservation_id] = Held(epoch, cost, *dated(now_ms))
        for index, (rule, account) in enumerate(pairs):
            for counter in range(4):
                if rule.limits[counter] != NO_LIMIT:
                    account.used[counter] += amounts[counter] * MINUTE_MS
            self._accounts[rule.name] = account
            self._holders.setdefault(rule.name, {})[reservation_id] = held
            left[index] = self._left(now_ms, rule, account, epoch)
        if self._epochs.get(epoch, 0) - now_ms < self._lease_ms * 2 / 3:
            self._epochs[epoch] = now_ms + self._lease_ms
        return answer(Status.ADMITTED)

    def settle(self, now_ms: int, plan: Plan, reservation_id: str, requests: int, used: Cost) -> None:
        """Correct a reservation to the `used` cost. No effect if it is not open."""
        self._tombs[reservation_id] = now_ms + self._tomb_ms
        held = self._open.pop(reservation_id, None)
        if held is None:
            return
        amounts, reserved = amounts_of(requests, used), amounts_of(1, held.cost)
        for rule in plan.rules:
            counted = reservation_id in self._holders.get(rule.name, ())
            account = self._refilled(now_ms, rule, settling=True, keep=counted)
            if not counted:
                continue
            for counter in range(4):
                if rule.limits[counter] != NO_LIMIT:
                    units = account.used[counter] + (amounts[counter] - reserved[counter]) * MINUTE_MS
                    account.used[counter] = max(0, units)
            self._release(rule.name, reservation_id)
            _charge(account, held, used)

    def beat(self, now_ms: int, epoch: str) -> bool:
        """Keep an epoch alive; False if it is unknown."""
        if epoch not in self._epochs:
            return False
        self._epochs[epoch] = now_ms + self._lease_ms
        return True

    def sweep(self, now_ms: int) -> None:
        """Forget state that no longer changes an answer, so that idle keys take no memory."""
        self._tombs = {name: until_ms for name, until_ms in self._tombs.items() if until_ms > now_ms}
        for name, account in list(self._accounts.items()):
            rested = account.stamp_ms + 2 * MINUTE_MS < now_ms and not self._holders.get(name)
            if rested and not account.spent_today and not account.spent_month:
                del self._accounts[name]

    def _left(self, now_ms: int, rule: PlannedRule, account: Account, epoch: str) -> tuple[int, ...]:
        held = self._holders.get(rule.name, {}).values()
        alive = [
            each
            for each in held
            if each.epoch == epoch or 0 < self._epochs.get(each.epoch, 0) - now_ms <= LONGEST_LEASE_MS
        ]
        limits = rule.limits
        units = [0 if limits[i] == NO_LIMIT else limits[i] * MINUTE_MS - account.used[i] for i in range(4)]
        tokens = micro = 0
        if limits[DAY_TOKENS] != NO_LIMIT:
            tokens = limits[DAY_TOKENS] - account.spent_today - sum(each.cost.tokens for each in alive)
        if limits[MONEY] != NO_LIMIT:
            micro = limits[MONEY] - account.spent_month - sum(each.cost.micro for each in held)
        return (*units, len(alive), tokens, micro)

    def _read(self, now_ms: int, name: str) -> Account:
        """A copy of the rule's account, advanced to the current day and month."""
        day, month = dated(now_ms)
        known = self._accounts.get(name)
        if known is None:
            return self.new_account(now_ms, day, month)
        account = msgspec.structs.replace(known)
        if account.day != day:
            account.days = _left_behind(account.days, account.day, account.spent_today)
            account.day, account.spent_today = day, account.days.pop(day, 0)
            account.days = _newest(account.days)
        if account.month != month:
            account.months = _left_behind(account.months, account.month, account.spent_month)
            account.month, account.spent_month = month, account.months.pop(month, 0)
            account.months = _newest(account.months)
        return account

    def _refilled(self, now_ms: int, rule: PlannedRule, *, settling: bool = False, keep: bool = False) -> Account:
        account = self._read(now_ms, rule.name)
        elapsed_ms = max(0, now_ms - account.stamp_ms)
        changed = not (settling and account.limits) and _adopt(account, rule.limits)
        account.used = [
            0 if limit == NO_LIMIT else max(0, used - elapsed_ms * limit)
            for used, limit in zip(account.used, account.limits[:4], strict=True)
        ]
        # After a clock was set back, or the limits changed, refusals alone would never store the account.
        if keep or changed or account.stamp_ms > now_ms:
            self._accounts[rule.name] = account
        account.stamp_ms = now_ms
        return account

    def _release(self, name: str, reservation_id: str) -> None:
        holders = self._holders.get(name)
        if holders is not None:
            holders.pop(reservation_id, None)
            if not holders:
                del self._holders[name]


def _adopt(account: Account, limits: tuple[int, ...]) -> bool:
    known, account.limits = account.limits, limits
    if not known:
        return False
    account.used = [
        min(used, limit * MINUTE_MS) if NO_LIMIT < limit < before else used
        for used, limit, before in zip(account.used, limits[:4], known[:4], strict=True)
    ]
    return known != limits


def _charge(account: Account, held: Held, used: Cost) -> None:
    if held.day == account.day:
        account.spent_today += used.tokens
    elif held.day in account.days:
        account.days = {**account.days, held.day: account.days[held.day] + used.tokens}
    if held.month >= account.month:
        account.spent_month += used.micro


def _wait_ms(now_ms: int, rule: PlannedRule, account: Account, counter: int, amount: int, left: int) -> int:
    limit = rule.limits[counter]
    if limit == NO_LIMIT:
        return 0
    if counter < CONCURRENCY:
        return max(0, -((left - amount * MINUTE_MS) // limit))
    if counter == CONCURRENCY:
        return RUNNING_WAIT_MS if left + amount > limit else 0
    if amount == 0 or amount <= left:
        return 0
    if counter == DAY_TOKENS:
        return (account.day + 1) * DAY_MS - now_ms if amount > limit - account.spent_today else RUNNING_WAIT_MS
    if amount <= limit - account.spent_month:
        return RUNNING_WAIT_MS
    year, month = account.month
    ends = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return int(ends.timestamp()) * 1_000 - now_ms


def _left_behind(pages: dict[T, int], page: T, spent: int) -> dict[T, int]:
    """A copy with the page that was the current one until now at its end."""
    return {**{each: value for each, value in pages.items() if each != page}, page: spent}


def _newest(pages: dict[T, int]) -> dict[T, int]:
    return dict(list(pages.items())[-DAYS_KEPT:])


def dated(now_ms: int) -> tuple[int, tuple[int, int]]:
    """The day since the epoch and the month of a moment, in UTC."""
    moment = datetime.fromtimestamp(now_ms / 1_000, UTC)
    return now_ms // DAY_MS, (moment.year, moment.month)
