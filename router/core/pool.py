"""The router's state of one pool: its replicas, its waiting requests, and everything learnt about them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from contracts.lease import LeaseRequest
from contracts.service_class import yields
from contracts.speculation import Way
from router.core.avoidance import Avoidance
from router.core.cache_reports import CacheReports
from router.core.fair_queue import FairQueue
from router.core.latency_model import LatencyModel
from router.core.load_shedding import Served
from router.core.outputs import Outputs
from router.core.pacing import Pacing
from router.core.prefix_index import PrefixIndex
from router.core.replica import Replica
from router.core.retry_reservations import RetryReservations
from router.core.ring import Ring
from router.core.speculation import UNGOVERNED, SpeculationGovernor
from router.core.split import SplitRule
from router.core.state import QueuedRequest
from router.core.teachers import Teachers
from router.core.wait_estimator import WaitEstimator


class PoolLinks(msgspec.Struct, frozen=True):
    """Names of the pools that share requests with a pool; empty for none."""

    prefill: str = ""
    """The pool that computes this pool's prompts."""
    decode: str = ""
    """The pool that generates from the prompts that this pool computes."""
    split: str = ""
    """The decode pool of the pair over which this pool's requests may be split."""
    whole: str = ""
    """For a decode pool: the pool whose requests it shares."""


class PoolState:
    """The mutable state of one pool, which `Fleet` owns."""

    def __init__(self, name: str, limit_blocks: int) -> None:
        self.name = name
        self.replicas: list[Replica] = []
        self.free: list[Replica] = []
        """Replicas with a free slot, in no particular order. `refresh` maintains it, so that no caller scans all."""
        self.usable = 0
        """Number of replicas that may get leases, including full ones. `refresh` maintains it."""
        self.idle = 0
        """Number of free replicas that serve no request. `refresh` maintains it."""
        self.max_adapters = 0
        """Adapter slots of each replica; 0 if the engines take no adapters."""
        self.links = PoolLinks()
        self.split_rule = SplitRule()
        self.governor: SpeculationGovernor | None = None
        """Governs drafts. If None, each engine drafts as it was started, and `ungoverned` has the reason."""
        self.ungoverned = UNGOVERNED
        self.queue = FairQueue()
        self.served = Served()
        self.retry_reservations = RetryReservations()
        self.avoidance = Avoidance()
        self.shed_at = 0.0
        """Time of the last pass over the queue for requests that cannot be served."""
        self.wait_estimator, self.yielding_waits = WaitEstimator(), WaitEstimator()
        self.latency_model = LatencyModel()
        self.first_token_teachers = Teachers()
        self.token_teachers = Teachers()
        """The organizations from whose reports `latency_model` is learnt."""
        self.outputs = Outputs()
        self.index = PrefixIndex(limit_blocks)
        self.by_slot: dict[int, Replica] = {}
        self.cache_reports = CacheReports()
        self.pacing = Pacing(self.latency_model)
        self.leases = 0
        """Number of leases on all replicas."""
        self.foreign = 0
        """Requests of other clients at the usable engines' last polls; maintained only with a governor."""
        self.weight = 0.0
        """Sum of the replicas' weights in placement."""
        self.weighted = False
        """Whether the weights differ."""
        self.open_at = float("inf")
        """Time at which a pool that its streams keep closed opens again; known once a request waits for it."""
        self._ring: Ring | None = None
        self._slots = 0
        self._freed_slots: list[int] = []

    @property
    def places(self) -> int:
        """Number of leases that the usable replicas can hold together."""
        return sum(replica.max_concurrency for replica in self.replicas if replica.usable)

    @property
    def whole(self) -> bool:
        """Whether every replica that should serve is usable, so that a lack of room is not due to a failure."""
        return all(replica.usable for replica in self.replicas if replica.weight > 0)

    def ready(self, ask: LeaseRequest) -> bool:
        """Whether a usable replica, free or not, could serve the request."""
        return any(replica.usable and replica.suits(ask) for replica in self.replicas)

    @property
    def unknown(self) -> bool:
        """Whether no replica's capacity is known, so that requests are served in order of arrival."""
        return all(replica.unknown for replica in self.replicas)

    def kept_away_from(self, ask: LeaseRequest) -> Collection[str]:
        """Ids of the replicas that a request avoids, because they failed its organization and others have not."""
        away = self.avoidance.of(ask.organization_id)
        if not away:
            return ()
        others = any(each.usable and each.id not in away and each.suits(ask) for each in self.replicas)
        return away if others else ()

    def waits_of(self, priority: int) -> WaitEstimator:
        """The estimator for requests of this class. Requests that yield have one of their own, because others go past
        them while they wait."""
        return self.yielding_waits if yields(priority) else self.wait_estimator

    def wait_s(self, waiting: QueuedRequest) -> float:
        """Seconds until one more request like this one would get its turn."""
        priority = waiting.ask.priority
        wait_s = self.waits_of(priority).wait_s(self.queue.ahead_of(waiting), self.places)
        if yields(priority) and (promised := self.queue.promised):  # they go first, at their own pace
            wait_s += self.wait_estimator.wait_s(promised - 1, self.places)
        return wait_s

    @property
    def ring(self) -> Ring:
        """The replicas on a consistent-hash ring."""
        if self._ring is None:
            self._ring = Ring([replica for replica in self.replicas if replica.weight > 0])
        return self._ring

    def refresh(self, replica: Replica) -> None:
        """Update the lists of free and usable replicas after a change of this replica."""
        usable = replica.usable and replica.slot >= 0
        if usable is not replica.counted:
            replica.counted = usable
            self.usable += 1 if usable else -1
        idle = usable and not replica.leases and not replica.foreign and replica.free
        if idle is not replica.counted_idle:
            replica.counted_idle = idle
            self.idle += 1 if idle else -1
        free, at = self.free, replica.at_free
        if replica.free:
            if at < 0:
                replica.at_free = len(free)
                free.append(replica)
        elif at >= 0:
            last = free.pop()
            if last is not replica:
                free[at] = last
                last.at_free = at
            replica.at_free = -1

    def become(self, replicas: list[Replica]) -> None:
        """Set the replicas of the pool."""
        for replica in self.replicas:
            if replica not in replicas:
                self.leave(replica)
        self.replicas = replicas
        self._ring = None
        self.leases = sum(replica.leases for replica in replicas)
        self.weigh()
        for replica in replicas:
            if self.by_slot.get(replica.slot) is not replica:
                replica.slot = self._freed_slots.pop() if self._freed_slots else self._slots
                self._slots = max(self._slots, replica.slot + 1)
                self.by_slot[replica.slot] = replica
            self.refresh(replica)

    def weigh(self) -> None:
        """Sum the replicas' weights in placement. Replicas that the governor does not prefer weigh less."""
        governor = self.governor
        for replica in self.replicas:
            other = governor is not None and governor.way is Way.VARIANTS and replica.speculation is not governor.on
            replica.preference = governor.rule.other_weight if governor is not None and other else 1.0
        self.weight = sum(replica.pull for replica in self.replicas)
        self.weighted = len({replica.pull for replica in self.replicas if replica.weight > 0}) > 1

    def govern(self, now: float) -> None:
        """Report the load until now to the governor, if any, before the running or waiting requests change."""
        if self.governor is None or not self.usable:
            return
        running = self.leases + self.foreign + len(self.queue)
        if self.governor.saw(running / self.usable, now):
            self.weigh()

    @property
    def no_drafts(self) -> bool:
        """Whether new grants have the flag that forbids drafts."""
        return self.governor is not None and self.governor.way is Way.REQUEST and not self.governor.on

    @property
    def speculation(self) -> str:
        """The state of the engines' drafting and its reason, in a few words."""
        return self.ungoverned if self.governor is None else self.governor.told

    def leave(self, replica: Replica) -> None:
        """Remove a replica from the pool, with the record of its cache."""
        self.avoidance.forget(replica.id)
        if self.by_slot.get(replica.slot) is replica:
            del self.by_slot[replica.slot]
            self.index.forget(replica.slot)
            self._freed_slots.append(replica.slot)
        replica.slot = -1
        self.refresh(replica)
        if replica.at_free >= 0 and replica.at_free < len(self.free) and self.free[replica.at_free] is replica:
            last = self.free.pop()
            if last is not replica:
                self.free[replica.at_free] = last
                last.at_free = replica.at_free
        replica.at_free = -1

    def capacity_blocks(self, replica: Replica, default: int) -> int:
        """Number of blocks that a replica's cache is assumed to hold."""
        if not replica.load.capacity_tokens:
            return max(1, int(default * replica.fill))
        return max(1, int(replica.load.capacity_tokens * replica.fill / self.cache_reports.tokens_per_block))
