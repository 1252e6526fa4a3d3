"""The scripts' rules over plain dictionaries: their naive twin in tests, and their stand-in while Valkey is gone.

Pure: the time is an argument. Every sum is taken over the open reservations themselves, where the scripts keep sums.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""Both as in state.lua."""
RUNNING_WAIT_MS = 1_000
"""When a running request ends is unknown; this is what the client is told to wait. As in reserve.lua."""

T = TypeVar("T", int, tuple[int, int])


class Held(msgspec.Struct):
    """An open reservation. rules: names of those it counts in. day, month: when it was reserved."""

    epoch: str
    cost: Cost
    day: int
    month: tuple[int, int]
    rules: set[str] = msgspec.field(default_factory=set)


class Account(msgspec.Struct):
    """What a rule remembers. used: units of the four counters per minute, at `stamp_ms`. seeded: the incarnation in
    which its money was counted. days, months: what was spent of others, the present of a moment ago at the end."""

    stamp_ms: int
    day: int
    month: tuple[int, int]
    seeded: str
    used: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    spent_today: int = 0
    spent_month: int = 0
    round: str = ""
    told_percent: int = 0
    ids: set[str] = msgspec.field(default_factory=set)
    days: dict[int, int] = msgspec.field(default_factory=dict)
    months: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)


class LocalLimiter:
    """Same verbs, arithmetic and answers as the scripts; what each promises is written there.

    seeded: a new rule's spending is known to be nothing (the stand-in), not unknown (the twin).
    """

    incarnation = "1"
    """Another after every restart of the store that is modelled."""

    def __init__(self, lease_ms: int, tomb_ms: int, percents: Sequence[int] = (), *, seeded: bool = True) -> None:
        self._lease_ms = lease_ms
        self._tomb_ms = tomb_ms
        self._percents = tuple(percents)
        self._seeded = seeded
        self._accounts: dict[str, Account] = {}
        self._open: dict[str, Held] = {}
        self._holders: dict[str, dict[str, Held]] = {}
        """Rule to what is open in it."""
        self._epochs: dict[str, int] = {}
        self._tombs: dict[str, int] = {}

    def reserve(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> Decision:
        """Take the cost in all rules or in none."""
        amounts = amounts_of(1, cost)
        pairs = [(rule, self._refilled(now_ms, rule)) for rule in plan.rules]
        left = [self._left(now_ms, rule, account, epoch) for rule, account in pairs]

        def answer(status: Status, rule: int = 0, counter: int = 0, wait_ms: int = 0) -> Decision:
            return Decision(status, rule, counter, wait_ms, now_ms, tuple(each for seven in left for each in seven))

        if reservation_id in self._open:
            return answer(Status.ADMITTED)
        if self._tombs.get(reservation_id, now_ms) > now_ms:
            return answer(Status.SETTLED)
        waits = []
        for index, (rule, account) in enumerate(pairs):
            if rule.limits[MONEY] != NO_LIMIT and cost.micro > 0 and not self._is_seeded(account):
                return answer(Status.UNSEEDED, index + 1, MONEY + 1)
            waits += [
                (_wait_ms(now_ms, rule, account, counter, amounts[counter], left[index][counter]), index + 1, counter)
                for counter in range(7)
            ]
        longest_ms = max(wait_ms for wait_ms, _, _ in waits)
        if longest_ms > 0:
            _, number, counter = next(wait for wait in waits if wait[0] == longest_ms)
            return answer(Status.REFUSED, number, counter + 1, longest_ms)
        held = self._open[reservation_id] = Held(epoch, cost, *_date(now_ms))
        for index, (rule, account) in enumerate(pairs):
            for counter in range(4):
                if rule.limits[counter] != NO_LIMIT:
                    account.used[counter] += amounts[counter] * MINUTE_MS
            self._accounts[rule.name] = account
            self._hold(rule.name, reservation_id, held)
            left[index] = self._left(now_ms, rule, account, epoch)
        if self._epochs.get(epoch, 0) - now_ms < self._lease_ms * 2 / 3:
            self._epochs[epoch] = now_ms + self._lease_ms
        return answer(Status.ADMITTED)

    def settle(
        self, now_ms: int, plan: Plan, reservation_id: str, requests: int, used: Cost
    ) -> list[tuple[int, int, int]] | None:
        """Correct a reservation to what was `used`; None when it is not open.

        Else (number of the rule from 1, percent, spent) for each budget of which an unreported share was reached.
        """
        self._tombs[reservation_id] = now_ms + self._tomb_ms
        held = self._open.pop(reservation_id, None)
        if held is None:
            return None
        amounts, reserved = amounts_of(requests, used), amounts_of(1, held.cost)
        reached = []
        for number, rule in enumerate(plan.rules, 1):
            account = self._refilled(now_ms, rule, keep=rule.name in held.rules)
            if rule.name not in held.rules:
                continue
            for counter in range(4):
                if rule.limits[counter] != NO_LIMIT:
                    units = account.used[counter] + (amounts[counter] - reserved[counter]) * MINUTE_MS
                    account.used[counter] = max(0, units)
            self._release(rule.name, reservation_id)
            self._charge(account, held, reservation_id, used.tokens, used.micro)
            percents = self._reached(account, rule.limits[MONEY])
            if percents:
                reached.append((number, max(percents), account.spent_month))
        return reached

    def look(self, now_ms: int, plan: Plan, epoch: str) -> tuple[int, ...]:
        """What is left in each rule, as in a Decision."""
        seven = (self._left(now_ms, rule, self._refilled(now_ms, rule), epoch) for rule in plan.rules)
        return tuple(each for rule in seven for each in rule)

    def beat(self, now_ms: int, epoch: str) -> bool:
        """Keep an epoch alive; False when it is not known."""
        if epoch not in self._epochs:
            return False
        self._epochs[epoch] = now_ms + self._lease_ms
        return True

    def announce(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> bool:
        """Count an open reservation wherever it is not counted yet; False when it was settled."""
        if self._tombs.get(reservation_id, now_ms) > now_ms:
            return False
        held = self._open.setdefault(reservation_id, Held(epoch, cost, *_date(now_ms)))
        for rule in plan.rules:
            account = self._account(now_ms, rule.name)
            self._hold(rule.name, reservation_id, held)
            self._mark(account, reservation_id)
        self._epochs[epoch] = now_ms + self._lease_ms
        return True

    def begin(self, now_ms: int, name: str, token: str) -> bool:
        """Begin to count a rule's money anew; False when it is counted."""
        if self._is_seeded(self._read(now_ms, name)):
            return False
        account = self._account(now_ms, name)
        account.spent_month, account.round, account.ids = 0, token, set()
        return True

    def ids(self, now_ms: int, name: str, token: str) -> set[str] | None:
        """What the ledger's sum must leave out; None when this count is over."""
        account = self._read(now_ms, name)
        return None if self._is_seeded(account) or account.round != token else set(account.ids)

    def seed(self, now_ms: int, name: str, token: str, micro: int, ids: int) -> int:
        """Add the ledger's sum. 1: done, 2: the ids changed, 0: this count is over."""
        account = self._read(now_ms, name)
        if self._is_seeded(account) or account.round != token:
            return 0
        if len(account.ids) != ids:
            return 2
        self._accounts[name] = account
        account.spent_month += micro
        account.seeded, account.round, account.ids = self.incarnation, "", set()
        return 1

    def unseed(self, now_ms: int, name: str) -> None:
        """The money spent is in doubt."""
        _unseed(self._account(now_ms, name))

    def told(self, now_ms: int, name: str, percent: int) -> None:
        """A threshold was passed on."""
        if self._read(now_ms, name).told_percent < percent:
            self._account(now_ms, name).told_percent = percent

    def retire(self, now_ms: int, reservation_id: str) -> bool:
        """End a reservation that nobody has any more."""
        held = self._open.pop(reservation_id, None)
        if held is None:
            return False
        for name in held.rules:
            self._release(name, reservation_id)
            account = self._account(now_ms, name)
            if held.cost.micro:
                _unseed(account)
        self._tombs[reservation_id] = now_ms + self._tomb_ms
        return True

    def forget_everything(self) -> None:
        """The store lost its data."""
        self._accounts.clear()
        self._open.clear()
        self._holders.clear()
        self._epochs.clear()
        self._tombs.clear()

    def sweep(self, now_ms: int) -> None:
        """Forget whatever no longer changes an answer, so that idle keys take no memory."""
        self._tombs = {name: until_ms for name, until_ms in self._tombs.items() if until_ms > now_ms}
        for name, account in list(self._accounts.items()):
            rested = account.stamp_ms + 2 * MINUTE_MS < now_ms and not self._holders.get(name)
            if rested and not account.spent_today and not account.spent_month and self._seeded:
                del self._accounts[name]

    def __len__(self) -> int:
        """Values held."""
        return len(self._accounts) + len(self._open) + len(self._tombs)

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

    def _account(self, now_ms: int, name: str) -> Account:
        """The rule's account, kept: with the pages of today."""
        account = self._accounts[name] = self._read(now_ms, name)
        return account

    def _read(self, now_ms: int, name: str) -> Account:
        """A copy of the rule's account, turned to today's pages."""
        day, month = _date(now_ms)
        known = self._accounts.get(name)
        if known is None:
            return Account(now_ms, day, month, self.incarnation if self._seeded else "")
        account = msgspec.structs.replace(known)
        if account.day != day:
            account.days = _left_behind(account.days, account.day, account.spent_today)
            account.day, account.spent_today = day, account.days.pop(day, 0)
            account.days = _newest(account.days)
        if account.month != month:
            account.months = _left_behind(account.months, account.month, account.spent_month)
            account.month, account.spent_month, account.told_percent = month, account.months.pop(month, 0), 0
            account.months = _newest(account.months)
            if not self._seeded:  # the store's money is counted from the ledger; the stand-in has its own memory alone
                account.spent_month = 0
                _unseed(account)
        return account

    def _refilled(self, now_ms: int, rule: PlannedRule, *, keep: bool = False) -> Account:
        account = self._read(now_ms, rule.name)
        elapsed_ms = max(0, now_ms - account.stamp_ms)
        account.used = [
            0 if limit == NO_LIMIT else max(0, used - elapsed_ms * limit)
            for used, limit in zip(account.used, rule.limits[:4], strict=True)
        ]
        if keep or account.stamp_ms > now_ms:  # clock set back: refusals alone would never stamp it
            self._accounts[rule.name] = account
        account.stamp_ms = now_ms
        return account

    def _hold(self, name: str, reservation_id: str, held: Held) -> None:
        held.rules.add(name)
        self._holders.setdefault(name, {})[reservation_id] = held

    def _release(self, name: str, reservation_id: str) -> None:
        holders = self._holders.get(name)
        if holders is not None:
            holders.pop(reservation_id, None)
            if not holders:
                del self._holders[name]

    def _charge(self, account: Account, held: Held, reservation_id: str, tokens: int, micro: int) -> None:
        if held.day == account.day:
            account.spent_today += tokens
        elif held.day in account.days:
            account.days = {**account.days, held.day: account.days[held.day] + tokens}
        if held.month >= account.month:
            account.spent_month += micro
            self._mark(account, reservation_id)

    def _is_seeded(self, account: Account) -> bool:
        return account.seeded == self.incarnation

    def _mark(self, account: Account, reservation_id: str) -> None:
        if not self._is_seeded(account) and account.round:
            account.ids.add(reservation_id)

    def _reached(self, account: Account, limit: int) -> list[int]:
        if limit <= 0 or not self._is_seeded(account):
            return []
        reached = account.spent_month * 100
        return [each for each in self._percents if each > account.told_percent and reached >= each * limit]


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


def _unseed(account: Account) -> None:
    account.seeded, account.round, account.ids = "", "", set()


def _left_behind(pages: dict[T, int], page: T, spent: int) -> dict[T, int]:
    """A copy with the page that was the present till now at its end."""
    return {**{each: value for each, value in pages.items() if each != page}, page: spent}


def _newest(pages: dict[T, int]) -> dict[T, int]:
    return dict(list(pages.items())[-DAYS_KEPT:])


def _date(now_ms: int) -> tuple[int, tuple[int, int]]:
    moment = datetime.fromtimestamp(now_ms / 1_000, UTC)
    return now_ms // DAY_MS, (moment.year, moment.month)
