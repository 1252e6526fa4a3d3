"""The real scripts on a real store, with the test's clock in place of the server's."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import redis

from contracts.generation import Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import Decision, Plan, plan_of
from gateway.limits.script import Calls, Script, decision, source

LEASE_MS, TOMB_MS = 15_000, 40_000
PERCENTS = (50, 80, 100)
CLOCK_LINE = "local now = server_ms()"
INCARNATION_LINE = "local incarnation = ARGV[#ARGV]"


def timed_source(name: str) -> str:
    """A script that finds its clock in its last argument."""
    text = source(name)
    assert text.count(CLOCK_LINE) == text.count(INCARNATION_LINE) == 1
    text = text.replace(INCARNATION_LINE, "local incarnation = ARGV[#ARGV - 1]")
    return text.replace(CLOCK_LINE, "local now = tonumber(ARGV[#ARGV])")


class TimedStore:
    """Calls the scripts as the gateway packs them, the time appended. Same verbs and answers as its reference."""

    incarnation = "1"

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._texts = (timed_source("reserve"), timed_source("upkeep"))
        for text in self._texts:
            client.script_load(text)

    def script(self, epoch: str) -> Script:
        script = Script(epoch, LEASE_MS, TOMB_MS, PERCENTS, self._texts)
        script.met(self.incarnation)
        return script

    def run(self, packed: bytes, now_ms: int) -> list[Any]:
        reply: list[Any] = self.client.execute_command(*words(packed), str(now_ms))  # type: ignore[no-untyped-call]
        return reply

    def reserve(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> Decision:
        return decision(self.run(Calls(self.script(epoch), plan).reserve(reservation_id, cost), now_ms))

    def settle(
        self, now_ms: int, plan: Plan, reservation_id: str, requests: int, used: Cost
    ) -> list[tuple[int, ...]] | None:
        reply = self.run(Calls(self.script("settler"), plan).settle(reservation_id, requests, used), now_ms)
        if reply == [0]:
            return None
        return [(*reply[at : at + 3], *reply[at + 4 : at + 6]) for at in range(1, len(reply), 6)]

    def look(self, now_ms: int, plan: Plan, epoch: str) -> tuple[int, ...]:
        return decision(self.run(Calls(self.script(epoch), plan).look(), now_ms)).left

    def beat(self, now_ms: int, plan: Plan, epoch: str) -> bool:
        return self._upkeep(now_ms, "beat", [plan.prefix + "epochs"], epoch, LEASE_MS) == [1]

    def announce(self, now_ms: int, plan: Plan, epoch: str, reservation_id: str, cost: Cost) -> bool:
        return self.run(Calls(self.script(epoch), plan).announce(reservation_id, cost), now_ms) == [1]

    def begin(self, now_ms: int, key: str, token: str) -> bool:
        return bool(self._upkeep(now_ms, "begin", [key], token)[0])

    def ids(self, now_ms: int, key: str, token: str) -> set[str] | None:
        known, *ids = self._upkeep(now_ms, "ids", [key], token)
        return {each.decode() for each in ids} if known else None

    def seed(self, now_ms: int, key: str, token: str, micro: int, ids: int, month: int) -> int:
        return int(self._upkeep(now_ms, "seed", [key], token, micro, ids, month)[0])

    def unseed(self, now_ms: int, key: str) -> None:
        self._upkeep(now_ms, "unseed", [key])

    def told(self, now_ms: int, key: str, percent: int, month: int, budget: int) -> None:
        self._upkeep(now_ms, "told", [key], percent, month, budget)

    def retire(self, now_ms: int, plan: Plan, reservation_id: str) -> bool:
        keys = [plan.prefix + "epochs", plan.prefix + "open", *(rule.key for rule in plan.rules)]
        keys.append(f"{plan.prefix}tomb:{reservation_id}")
        return self._upkeep(now_ms, "retire", keys, reservation_id, TOMB_MS) == [1]

    def _upkeep(self, now_ms: int, verb: str, keys: Sequence[str], *arguments: str | int) -> list[Any]:
        return self.run(self.script("x").upkeep(verb, keys, *arguments), now_ms)


def words(packed: bytes) -> list[bytes]:
    """The words of a packed command."""
    import hiredis

    reader = hiredis.Reader()
    reader.feed(packed)
    read: list[bytes] = reader.gets()
    assert reader.gets() is False  # nothing behind it
    return read


def one_rule(limits: Limits, organization: str = "o", level: Level = Level.KEY) -> Plan:
    """A plan with one rule for all tiers."""
    plan = plan_of("t", Levels.of(organization, [Rule(level, "s", None, limits)]), Tier.CHAT)
    assert plan is not None
    return plan


def fresh(limits: Limits) -> Plan:
    """The same for an organization of its own."""
    return one_rule(limits, organization=uuid.uuid4().hex)
