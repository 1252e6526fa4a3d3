"""script.lua in a real store against its naive twin in a dictionary: same calls, same answers, at any time of day."""

from __future__ import annotations

from typing import Any

import hiredis
import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gateway.limits.bucket import Bucket, Counter, Decision, Kind, Plan, Status, plan_of
from gateway.limits.key_limits import KeyLimits
from gateway.limits.local import LocalLimiter
from gateway.limits.script import Calls, Script, decision, source
from tests.gateway.limits.store import AnyStore

LEASE_MS, RECORD_MS = 15_000, 40_000
EDGES_MS = [1, LEASE_MS - 1, LEASE_MS, RECORD_MS - LEASE_MS, RECORD_MS, 10**9]
CLOCK_LINE = "local now, slack_ms = server_ms(), 1000"


def timed_source() -> str:
    """The script with its clock as the last argument, and no garbage collected by the store's own clock."""
    assert source().count(CLOCK_LINE) == 1
    return source().replace(CLOCK_LINE, "local now, slack_ms = tonumber(ARGV[#ARGV]), 3600000")


class Timed:
    """Calls the timed script the way the gateway calls the real one."""

    def __init__(self, client: redis.Redis) -> None:
        self._script = client.register_script(timed_source())

    def run(self, verb: str, plan: Plan, now_ms: int, ids: list[str], amounts: list[int]) -> list[int]:
        keys = [bucket.key for bucket in plan.buckets] + [plan.record_prefix + each for each in ids]
        words: list[Any] = [verb, LEASE_MS, RECORD_MS, len(plan.buckets)]
        for bucket in plan.buckets:
            words += [bucket.kind.value, bucket.limit, bucket.period_ms]
        words += amounts
        reply: list[int] = self._script(keys=keys, args=[*words, *ids, now_ms])
        return reply


class Twins(RuleBasedStateMachine):
    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.timed = Timed(self.client)
        self.twin = LocalLimiter(LEASE_MS, RECORD_MS)
        self.now_ms = 1_700_000_000_000
        self.swept_ms = 0

    @initialize(
        requests=st.none() | st.integers(1, 20),
        tokens=st.sampled_from([1, 7, 100, 1_013, 60_000, 10**9]),
        concurrency=st.none() | st.integers(1, 3),
        tokens_per_day=st.none() | st.sampled_from([1, 5_000, 100_000_000]),
    )
    def make_plan(self, requests: int | None, tokens: int, concurrency: int | None, tokens_per_day: int | None) -> None:
        self.client.flushdb()
        plan = plan_of("t", "key", KeyLimits(requests, tokens, concurrency))
        assert plan is not None
        buckets = plan.buckets
        if tokens_per_day is not None:  # a second level, as organizations will add
            buckets += (Bucket(Counter.TOKENS, Kind.RATE, "t:{key}:day", tokens_per_day, 86_400_000),)
        self.plan = Plan(buckets, plan.record_prefix)
        self.tokens = tokens

    def amounts(self, requests: int, tokens: int) -> list[int]:
        return [bucket.amount(requests, tokens) for bucket in self.plan.buckets]

    @rule(number=st.integers(0, 4), share=st.floats(0, 1.1))
    def reserve(self, number: int, share: float) -> None:
        amounts = self.amounts(1, int(self.tokens * share))
        theirs = decision(self.timed.run("reserve", self.plan, self.now_ms, [str(number)], amounts))
        ours = self.twin.reserve(self.now_ms, self.plan.buckets, amounts, str(number))
        assert theirs == ours
        self.check_answer(ours, amounts)

    @rule(number=st.integers(0, 4), share=st.floats(0, 1.5), refund=st.booleans())
    def settle(self, number: int, share: float, refund: bool) -> None:
        amounts = self.amounts(0 if refund else 1, int(self.tokens * share))
        for _ in range(2):  # the second one is a no-op, on both sides
            theirs = self.timed.run("settle", self.plan, self.now_ms, [str(number)], amounts)
            ours = self.twin.settle(self.now_ms, self.plan.buckets, amounts, str(number))
            assert theirs == [int(ours)]

    @rule(numbers=st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
    def renew(self, numbers: list[int]) -> None:
        ids = [str(number) for number in numbers]
        theirs = self.timed.run("renew", self.plan, self.now_ms, ids, self.amounts(0, 0))
        assert theirs == [self.twin.renew(self.now_ms, self.plan.buckets, ids)]

    @rule(ms=st.integers(0, 70_000) | st.sampled_from(EDGES_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=st.integers(1, 100_000))
    def clock_is_set_back(self, ms: int) -> None:
        self.now_ms = max(self.now_ms - ms, self.swept_ms)  # what was collected as over does not come back

    @rule()
    def memory_is_swept(self) -> None:
        self.twin.sweep(self.now_ms)
        self.swept_ms = self.now_ms

    @invariant()
    def buckets_never_exceed_their_capacity(self) -> None:
        if hasattr(self, "plan"):
            for bucket in self.plan.buckets:
                level = self.twin.level(self.now_ms, bucket)
                assert level <= (bucket.capacity_units if bucket.kind is Kind.RATE else 5)

    def check_answer(self, answer: Decision, amounts: list[int]) -> None:
        for bucket, amount, level in zip(self.plan.buckets, amounts, answer.levels, strict=True):
            if answer.status is Status.ADMITTED and bucket.kind is Kind.RATE:
                assert level <= bucket.capacity_units
            if answer.status is Status.REFUSED and bucket.kind is Kind.RATE:
                assert level + answer.wait_ms * bucket.limit >= amount * bucket.period_ms  # the wait is enough


def test_script_and_twin_agree(store: AnyStore) -> None:
    with store.client() as client:
        if client.connection_pool.connection_kwargs.get("path") is None:
            pytest.skip("flushes the database: only on a store of our own")
        machine = type("Twins", (Twins,), {"client": client})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=200,
                stateful_step_count=40,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            ),
        )


def one_bucket(limit: int) -> Plan:
    plan = plan_of("t", "exact", KeyLimits(tokens_per_minute=limit))
    assert plan is not None
    return plan


@pytest.mark.parametrize("limit", [1, 7, 59, 1_000_003, 10**9])
def test_a_million_touches_drift_by_nothing(limit: int) -> None:
    """Touching a bucket every 1 ms or once after 60 s refills exactly the same."""
    plan = one_bucket(limit)
    twin, bucket = LocalLimiter(LEASE_MS, RECORD_MS), plan.buckets[0]
    assert twin.reserve(0, plan.buckets, [limit], "all").status is Status.ADMITTED
    for ms in range(1, 60_000):
        assert twin.reserve(ms, plan.buckets, [0], "touch").status is Status.ADMITTED
        twin.settle(ms, plan.buckets, [0], "touch")
        twin._records.clear()  # the same id again
    assert twin.level(59_999, bucket) == limit * 59_999
    assert twin.level(60_000, bucket) == bucket.capacity_units


def test_the_wait_is_exact_to_the_millisecond(store: AnyStore) -> None:
    with store.client() as client:
        timed, plan = Timed(client), one_bucket(7)
        client.delete(plan.buckets[0].key, *client.keys(plan.record_prefix + "*"))
        now_ms = 1_700_000_000_000
        assert timed.run("reserve", plan, now_ms, ["a"], [7])[0] == Status.ADMITTED
        refused = decision(timed.run("reserve", plan, now_ms, ["b"], [1]))
        assert refused.wait_ms == 8_572  # 60,000 / 7 = 8,571.4
        early = decision(timed.run("reserve", plan, now_ms + refused.wait_ms - 1, ["b"], [1]))
        assert (early.status, early.wait_ms) == (Status.REFUSED, 1)
        assert timed.run("reserve", plan, now_ms + refused.wait_ms, ["b"], [1])[0] == Status.ADMITTED


def test_a_dead_gateways_place_lapses_with_its_lease_and_a_live_ones_does_not(store: AnyStore) -> None:
    with store.client() as client:
        timed = Timed(client)
        plan = plan_of("t", "lapse", KeyLimits(max_concurrency=2))
        assert plan is not None
        client.delete(plan.buckets[0].key, *client.keys(plan.record_prefix + "*"))
        now_ms = 1_700_000_000_000
        for name in ("dead", "live"):
            assert timed.run("reserve", plan, now_ms, [name], [1])[0] == Status.ADMITTED
        timed.run("renew", plan, now_ms + LEASE_MS - 1, ["live"], [0])
        assert timed.run("reserve", plan, now_ms + LEASE_MS - 1, ["new"], [1])[0] == Status.REFUSED
        assert timed.run("reserve", plan, now_ms + LEASE_MS, ["new"], [1])[0] == Status.ADMITTED
        assert timed.run("reserve", plan, now_ms + LEASE_MS, ["newer"], [1])[0] == Status.REFUSED


def test_a_reserve_that_arrives_after_its_undo_takes_nothing(store: AnyStore) -> None:
    with store.client() as client:
        timed, plan = Timed(client), one_bucket(50)
        client.delete(plan.buckets[0].key, *client.keys(plan.record_prefix + "*"))
        timed.run("settle", plan, 1_000, ["late"], [0])
        assert decision(timed.run("reserve", plan, 1_001, ["late"], [50])) == Decision(
            Status.SETTLED, 0, 0, (plan.buckets[0].capacity_units,)
        )


def words(packed: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(packed)
    read: list[bytes] = reader.gets()
    assert reader.gets() is False  # nothing behind it
    return read


def test_every_key_is_passed_as_a_key_and_all_share_a_hash_tag() -> None:
    plan = plan_of("p", "k", KeyLimits(1, 2, 3))
    assert plan is not None
    calls = Calls(Script(source(), 11, 22), plan)
    buckets = [b"p:{k}:requests", b"p:{k}:tokens", b"p:{k}:concurrency"]
    described = [b"rate", b"1", b"60000", b"rate", b"2", b"60000", b"concurrency", b"3", b"0"]
    assert words(calls.reserve("r1", 1, 700))[2:] == [
        *(b"4", *buckets, b"p:{k}:reservation:r1", b"reserve", b"11", b"22", b"3"),
        *(*described, b"1", b"700", b"1", b"r1"),
    ]
    assert words(calls.settle("r1", 0, 5))[7:] == [
        *(b"settle", b"11", b"22", b"3", *described, b"0", b"5", b"0", b"r1"),
    ]
    assert words(calls.renew(["r1", "r2"]))[2:] == [
        *(b"5", *buckets, b"p:{k}:reservation:r1", b"p:{k}:reservation:r2", b"renew", b"11", b"22", b"3"),
        *(*described, b"0", b"0", b"0", b"r1", b"r2"),
    ]


def test_a_record_ends_at_its_millisecond_unless_it_was_renewed(store: AnyStore) -> None:
    with store.client() as client:
        timed, plan, now_ms = Timed(client), one_bucket(50), 1_700_000_000_000
        client.delete(plan.buckets[0].key, *(plan.record_prefix + name for name in ("early", "late", "renewed")))
        for name in ("early", "late", "renewed"):
            timed.run("reserve", plan, now_ms, [name], [1])
        timed.run("renew", plan, now_ms + RECORD_MS - 1, ["renewed"], [0])
        assert timed.run("settle", plan, now_ms + RECORD_MS - 1, ["early"], [0]) == [1]
        assert timed.run("settle", plan, now_ms + RECORD_MS, ["late"], [0]) == [0]
        assert timed.run("settle", plan, now_ms + RECORD_MS, ["renewed"], [0]) == [1]


def test_a_bucket_refunded_beyond_full_is_not_stored(store: AnyStore) -> None:
    with store.client() as client:
        timed, plan, now_ms = Timed(client), one_bucket(50), 1_700_000_000_000
        client.delete(plan.buckets[0].key, plan.record_prefix + "refunded")
        timed.run("reserve", plan, now_ms, ["refunded"], [50])
        assert client.exists(plan.buckets[0].key) == 1
        timed.run("settle", plan, now_ms + 30_000, ["refunded"], [0])  # half of it has refilled already
        assert client.exists(plan.buckets[0].key) == 0


def test_sixteen_digits_are_stored_exactly(store: AnyStore) -> None:
    with store.client() as client:
        timed, now_ms = Timed(client), 1_700_000_000_000
        bucket = Bucket(Counter.TOKENS, Kind.RATE, "t:{exact}:day", 99_999_989, 86_400_000)
        plan = Plan((bucket,), "t:{exact}:day:reservation:")
        client.delete(bucket.key, plan.record_prefix + "a", plan.record_prefix + "b", plan.record_prefix + "c")
        timed.run("reserve", plan, now_ms, ["a"], [12_345_679])
        timed.run("reserve", plan, now_ms + 1, ["b"], [1])
        left_units = decision(timed.run("reserve", plan, now_ms + 1, ["c"], [0])).levels[0]
        assert left_units == bucket.capacity_units - 12_345_680 * 86_400_000 + 99_999_989
