"""The scripts' rules in full, over plain dictionaries: with how the store counts money anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from gateway.limits.cost import Cost
from gateway.limits.local import Account, Held, LocalLimiter, dated
from gateway.limits.plan import MONEY, NO_LIMIT, Decision, Plan, Status


class StandIn(LocalLimiter):
    """Whose counters can be read."""

    def look(self, now_ms: int, plan: Plan, epoch: str) -> tuple[int, ...]:
        """What is left in each rule, as in a Decision."""
        seven = (self._left(now_ms, rule, self._refilled(now_ms, rule), epoch) for rule in plan.rules)
        return tuple(each for rule in seven for each in rule)


class StoredAccount(Account):
    """seeded: the incarnation in which its money was counted. told_percent: the threshold reported last this month,
    of the budget `told_of`."""

    seeded: str = ""
    round: str = ""
    told_percent: int = 0
    told_of: int = -1
    ids: set[str] = msgspec.field(default_factory=set)


class ReferenceLimiter(StandIn):
    """Same verbs, arithmetic and answers as the scripts; what each promises is written there.

    A month's money is known only once it has been counted from the ledger, in each incarnation anew.
    """

    new_account = StoredAccount
    incarnation = "1"
    """Another after every restart of the store that is modelled."""

    def __init__(self, lease_ms: int, tomb_ms: int, percents: Sequence[int]) -> None:
        super().__init__(lease_ms, tomb_ms)
        self._percents = tuple(percents)

    def reserve(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> Decision:
        if reservation_id not in self._open and self._tombs.get(reservation_id, now_ms) <= now_ms and cost.micro:
            for number, rule in enumerate(plan.rules, 1):
                if rule.limits[MONEY] != NO_LIMIT and not self._is_seeded(self._stored(now_ms, rule.name)):
                    left = self.look(now_ms, plan, epoch)
                    return Decision(Status.UNSEEDED, number, MONEY + 1, 0, now_ms, left)
        return super().reserve(now_ms, plan, epoch, reservation_id, cost)

    def settle(  # type: ignore[override]
        self, now_ms: int, plan: Plan, reservation_id: str, requests: int, used: Cost
    ) -> list[tuple[int, ...]] | None:
        """None when it was not open. Else (number of the rule from 1, percent, spent, budget, told before) for each
        budget of which an unreported share was reached."""
        held = self._open.get(reservation_id)
        counted = self._rules_of(reservation_id)
        for rule in plan.rules if held is not None else ():
            if rule.name in counted:
                self._align_told(self._kept(now_ms, rule.name), rule.limits[MONEY])
        super().settle(now_ms, plan, reservation_id, requests, used)
        if held is None:
            return None
        reached: list[tuple[int, ...]] = []
        for number, rule in enumerate(plan.rules, 1):
            if rule.name not in counted:
                continue
            account = cast(StoredAccount, self._accounts[rule.name])
            if held.month >= account.month:
                self._mark(account, reservation_id)
            percents = self._reached(account, account.limits[MONEY])
            if percents:
                spent, budget = account.spent_month, account.limits[MONEY]
                reached.append((number, max(percents), spent, budget, account.told_percent))
        return reached

    def announce(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> bool:
        """Count an open reservation wherever it is not counted yet; False when it was settled."""
        if self._tombs.get(reservation_id, now_ms) > now_ms:
            return False
        held = self._open.setdefault(reservation_id, Held(epoch, cost, *dated(now_ms)))
        for rule in plan.rules:
            account = self._kept(now_ms, rule.name)
            self._holders.setdefault(rule.name, {})[reservation_id] = held
            self._mark(account, reservation_id)
        self._epochs[epoch] = now_ms + self._lease_ms
        return True

    def begin(self, now_ms: int, name: str, token: str) -> bool:
        """Begin to count a rule's money anew; False when it is counted."""
        if self._is_seeded(self._stored(now_ms, name)):
            return False
        account = self._kept(now_ms, name)
        account.spent_month, account.round, account.ids = 0, token, set()
        return True

    def ids(self, now_ms: int, name: str, token: str) -> set[str] | None:
        """What the ledger's sum must leave out; None when this count is over."""
        account = self._stored(now_ms, name)
        return None if self._is_seeded(account) or account.round != token else set(account.ids)

    def seed(self, now_ms: int, name: str, token: str, micro: int, ids: int) -> int:
        """Add the ledger's sum. 1: done, 2: the ids changed, 0: this count is over."""
        account = self._stored(now_ms, name)
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
        _unseed(self._kept(now_ms, name))

    def told(self, now_ms: int, name: str, percent: int, budget: int) -> None:
        """A threshold was passed on."""
        account = self._stored(now_ms, name)
        if account.told_of == budget and account.told_percent < percent:
            self._kept(now_ms, name).told_percent = percent

    def retire(self, now_ms: int, reservation_id: str) -> bool:
        """End a reservation that nobody has any more."""
        counted = self._rules_of(reservation_id)
        held = self._open.pop(reservation_id, None)
        if held is None:
            return False
        for name in counted:
            self._release(name, reservation_id)
            account = self._kept(now_ms, name)
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

    def _read(self, now_ms: int, name: str) -> Account:
        account, known = cast(StoredAccount, super()._read(now_ms, name)), self._accounts.get(name)
        if known is not None and known.month != account.month:  # counted from the ledger, not from this memory
            account.spent_month = account.told_percent = 0
            _unseed(account)
        return account

    def _stored(self, now_ms: int, name: str) -> StoredAccount:
        return cast(StoredAccount, self._read(now_ms, name))

    def _kept(self, now_ms: int, name: str) -> StoredAccount:
        """The rule's account, with the pages of today, to be changed."""
        account = self._accounts[name] = self._stored(now_ms, name)
        return account

    def _rules_of(self, reservation_id: str) -> set[str]:
        return {name for name, holders in self._holders.items() if reservation_id in holders}

    def _is_seeded(self, account: StoredAccount) -> bool:
        return account.seeded == self.incarnation

    def _mark(self, account: StoredAccount, reservation_id: str) -> None:
        if not self._is_seeded(account) and account.round:
            account.ids.add(reservation_id)

    def _align_told(self, account: StoredAccount, begun_under: int) -> None:
        budget = account.limits[MONEY] if account.limits else begun_under
        if budget <= 0 or not self._is_seeded(account):
            return
        if budget > account.told_of:  # raised: what is passed already is not told
            passed = [each for each in self._percents if account.spent_month * 100 >= each * budget]
            account.told_percent = min(account.told_percent, max(passed, default=0))
        account.told_of = budget

    def _reached(self, account: StoredAccount, limit: int) -> list[int]:
        if limit <= 0 or not self._is_seeded(account):
            return []
        reached = account.spent_month * 100
        return [each for each in self._percents if each > account.told_percent and reached >= each * limit]


def _unseed(account: StoredAccount) -> None:
    account.seeded, account.round, account.ids = "", "", set()
