"""The key cache against a naive twin: lists searched from end to end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contracts.generation import Caller
from gateway.auth.cache import KeyCache
from gateway.auth.key_record import KeyRecord, Reason, Refusal
from gateway.limits.levels import Level, Levels, Limits, Rule

MAX_KEYS, MAX_REFUSALS = 3, 2
NUMBERS = st.integers(0, 6)
CALLERS = [Caller("no"[number % 2], "pqr"[number % 3], str(number)) for number in range(7)]
IN_TENANT = {
    **{f"organization:{name}": [each for each in CALLERS if each.organization_id == name] for name in "no"},
    **{f"project:{name}": [each for each in CALLERS if each.project_id == name] for name in "pqr"},
}
TENANTS = [*IN_TENANT, "project:nobody", "organization:p"]
IN_TENANT |= {"project:nobody": [], "organization:p": []}


def fingerprint(number: int) -> bytes:
    return b"f%d" % number


def key_hash(number: int) -> bytes:
    return b"h%d" % number


class CacheMachine(RuleBasedStateMachine):
    """Twin: pairs of number and answer, least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KeyCache(MAX_KEYS, MAX_REFUSALS)
        self.records: list[tuple[int, KeyRecord]] = []
        self.refusals: list[tuple[int, Refusal]] = []

    @rule(number=NUMBERS, limit=st.integers(1, 3))
    def put_record(self, number: int, limit: int) -> None:
        record = KeyRecord(
            CALLERS[number],
            Levels.of("o", [Rule(Level.KEY, str(number), None, Limits(requests_per_minute=limit))]),
        )
        self.cache.put(fingerprint(number), key_hash(number), record)
        self.forget(number)
        self.records = [*self.records, (number, record)][-MAX_KEYS:]

    @rule(number=NUMBERS, reason=st.sampled_from(Reason))
    def put_refusal(self, number: int, reason: Reason) -> None:
        refusal = Refusal(reason, None if reason is Reason.UNKNOWN else CALLERS[number])
        self.cache.put(fingerprint(number), key_hash(number), refusal)
        self.forget(number)
        self.refusals = [*self.refusals, (number, refusal)][-MAX_REFUSALS:]

    @rule(number=NUMBERS)
    def drop(self, number: int) -> None:
        self.cache.drop(key_hash(number))
        self.forget(number)

    @rule(tenant=st.sampled_from(TENANTS))
    def drop_tenant(self, tenant: str) -> None:
        self.cache.drop_tenant(tenant)
        for number, answer in self.known():
            if answer.caller in IN_TENANT[tenant]:
                self.forget(number)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.records, self.refusals = [], []

    @rule(number=NUMBERS)
    def look(self, number: int) -> None:
        assert self.cache.record(fingerprint(number)) == dict(self.records).get(number)
        assert self.cache.refusal(key_hash(number)) == dict(self.refusals).get(number)
        self.records.sort(key=lambda entry: entry[0] == number)  # stable: moves the one looked at to the end
        self.refusals.sort(key=lambda entry: entry[0] == number)

    @invariant()
    def nothing_else_is_kept(self) -> None:
        assert len(self.cache) == len(self.records) + len(self.refusals)
        assert {number for number, _ in self.records}.isdisjoint(number for number, _ in self.refusals)
        assert len(self.cache._fingerprints) == len(self.records)
        named = [answer for _, answer in self.known() if answer.caller is not None]
        assert sum(map(len, self.cache._of_tenant.values())) == 2 * len(named)
        assert all(self.cache._of_tenant.values())

    def known(self) -> list[tuple[int, KeyRecord | Refusal]]:
        return [*self.records, *self.refusals]

    def forget(self, number: int) -> None:
        self.records = [entry for entry in self.records if entry[0] != number]
        self.refusals = [entry for entry in self.refusals if entry[0] != number]


TestCache = CacheMachine.TestCase
