"""A ledger in memory with a journal before it for each gateway, and gateways that die."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Collection

from contracts.generation import Caller, Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.reservations import Reservation
from gateway.limits.spending import Crossing, Subject
from tests.gateway.limits.store import MakeLimiter, MeasuredLimiter
from tests.waiting import GUARD_S

Row = tuple[str, Caller, Tier, int]
"""Request id, who, tier, amount."""


class FakeLedger:
    """Shared by the gateways of a test; same promises as LedgerSpending."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.journals: dict[str, list[Row]] = defaultdict(list)
        self.joined: dict[str, str] = {}
        self.crossings: list[Crossing] = []
        self.away = False
        self.clock_behind_ms = 0

    @property
    def total_micro(self) -> int:
        """Everything billed, shipped or not."""
        return sum(row[3] for row in [*self.rows.values(), *(row for rows in self.journals.values() for row in rows)])

    def close(self, instance: str, reservation: Reservation, amount_micro: int) -> None:
        """The attempt is durably closed in this gateway's journal; shipped by the next `ship`."""
        row = (reservation.id, reservation.caller, reservation.tier, amount_micro)
        self.journals[instance].append(row)

    async def ship(self, instance: str) -> bool:
        """What the gateway's shipper does."""
        await asyncio.sleep(0)
        if self.away:
            return False
        for row in self.journals.pop(instance, []):
            self.rows[row[0]] = row
        return True

    async def now_ms(self) -> int:
        self._require()
        return time.time_ns() // 1_000_000 - self.clock_behind_ms

    async def spent_micro(self, subject: Subject, since_ms: int, without: Collection[str]) -> int:
        self._require()
        left_out = set(without)
        field = {Level.ORGANIZATION: "organization_id", Level.PROJECT: "project_id", Level.KEY: "key_id"}[subject.level]
        return sum(
            amount
            for name, caller, tier, amount in self.rows.values()
            if name not in left_out and getattr(caller, field) == subject.subject_id and subject.tier in (None, tier)
        )

    async def join(self, instance: str, epoch: str) -> None:
        self._require()
        self.joined[instance] = epoch

    async def leave(self, instance: str) -> None:
        self._require()
        self.joined.pop(instance, None)

    async def instances(self) -> set[str]:
        self._require()
        return set(self.joined)

    async def crossed(self, crossing: Crossing) -> None:
        self._require()
        new = _occasion(crossing)
        if all(_occasion(known) != new for known in self.crossings):
            self.crossings.append(crossing)

    def _require(self) -> None:
        if self.away:
            raise OSError("the ledger is away")


def _occasion(crossing: Crossing) -> tuple[str, int, int]:
    return crossing.subject_id, crossing.percent, crossing.limit_micro


class Platform:
    """Gateways that share a store and a ledger, and one organization whose requests cost money."""

    def __init__(self, make_limiter: MakeLimiter, url: str, **config: object) -> None:
        self._make_limiter = make_limiter
        self._url = url
        # However slow the machine is: no lease ends by itself (a test that wants that has it `lapse`), and a budget
        # that can be counted is waited for.
        self._config = {"seed_poll_s": 0.02, "lease_s": 300, "seed_wait_s": 30, **config}
        self.ledger = FakeLedger()
        self.gateways: dict[str, MeasuredLimiter] = {}
        name = uuid.uuid4().hex
        self.caller = Caller(f"org-{name}", f"project-{name}", f"key-{name}")

    def levels(self, *rules: tuple[Level, Tier | None, Limits]) -> Levels:
        """Rules of the caller's organization, project and key."""
        subjects = {
            Level.ORGANIZATION: self.caller.organization_id,
            Level.PROJECT: self.caller.project_id,
            Level.KEY: self.caller.key_id,
        }
        return Levels.of(
            self.caller.organization_id, [Rule(level, subjects[level], tier, limits) for level, tier, limits in rules]
        )

    def budget(self, micro: int, level: Level = Level.ORGANIZATION) -> Levels:
        """Nothing but a month's money."""
        return self.levels((level, None, Limits(money_micro_per_month=micro)))

    async def gateway(self, instance: str = "a", **config: object) -> MeasuredLimiter:
        """Start a gateway; the same name again is its next run."""
        gateway = await self._make_limiter(
            self._url,
            instance=instance,
            spending=self.ledger,
            drain=lambda timeout_s: self.ledger.ship(instance),
            **{**self._config, **config},
        )
        self.gateways[instance] = gateway
        async with asyncio.timeout(GUARD_S):
            await gateway.wait_connected()
        return gateway

    async def reserve(
        self, gateway: MeasuredLimiter, levels: Levels, micro: int, *, tokens: int = 0, tier: Tier = Tier.CHAT
    ) -> Reservation:
        """A new request that may cost `micro`."""
        return await gateway.reserve(uuid.uuid4().hex, self.caller, tier, levels, Cost(0, tokens, micro))

    async def finish(self, instance: str, reservation: Reservation, micro: int, *, tokens: int = 0) -> None:
        """As the exchange does it: durably closed, then settled."""
        self.ledger.close(instance, reservation, micro)
        await self.gateways[instance].settle(reservation, Cost(0, tokens, micro))

    async def left_micro(self, gateway: MeasuredLimiter, levels: Levels) -> int:
        """Of the first rule's money, nothing open or spent."""
        return (await gateway.left(levels, Tier.CHAT))[6]


async def die(gateway: MeasuredLimiter) -> None:
    """As kill -9: nothing is settled, announced or said."""
    await gateway._counting.stop()
    for task in gateway._tasks:
        await task.stop()
    gateway._valkey.on_change = lambda _connected: None
    await gateway._valkey.stop()
