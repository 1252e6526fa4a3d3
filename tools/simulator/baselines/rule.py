"""A placement rule of another router, and the shell that drives it with the core's events.

These routers have no queue of their own by default: they send every request to an engine at once, where it waits. So
the shell grants each request immediately, refuses only if the rule does, and gives the rule the data that its original
would see.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from contracts.errors import Overloaded
from contracts.lease import Engine, Lease, LeaseRequest
from contracts.prefix import block_hashes
from engines.drivers.base import Load
from router.core.decisions import Decision, Granted, Refused, Welcomed
from router.core.events import Acquire, Event, FirstToken, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.core.reasons import Reason


class Request:
    """The data that a rule may read."""

    __slots__ = ("block_tokens", "blocks", "prompt_tokens", "session_id")

    def __init__(self, ask: LeaseRequest, block_tokens: int) -> None:
        self.blocks = tuple(block_hashes(ask.prefix_hashes))
        self.prompt_tokens = ask.prompt_tokens
        self.session_id = ask.session_id
        self.block_tokens = block_tokens


class Rule(ABC):
    """Chooses a worker by number. It counts the requests in flight per worker, as this router sees them."""

    def prepare(self, workers: int, source: random.Random) -> None:
        """Called once, before everything else."""
        self.in_flight = [0] * workers
        self.processed = [0] * workers
        self.source = source

    @abstractmethod
    def choose(self, request: Request, now: float) -> int | None:
        """The worker, which gets the request at once, so that `take` counts it here; None to refuse."""

    def first_token(self, worker: int, request: Request) -> None:  # noqa: B027  not every rule needs it
        """The response has begun."""

    def ended(self, worker: int, request: Request) -> None:
        """The response has ended."""
        self.in_flight[worker] -= 1

    def kv_event(self, worker: int, stored: bool, block: bytes) -> None:  # noqa: B027  not every rule has an index
        """A worker's cache has changed."""

    def polled(self, worker: int, load: Load) -> None:  # noqa: B027  most rules count themselves
        """A worker's own report, once per poll interval of the simulation."""

    def take(self, worker: int) -> int:
        """Count a request on its worker."""
        self.in_flight[worker] += 1
        self.processed[worker] += 1
        return worker

    def least(self, allowed: Sequence[int] | None = None) -> int:
        """The allowed worker (by default any) with the fewest requests in flight, then the fewest ever, then the
        first."""
        in_flight, processed = self.in_flight, self.processed
        among = range(len(in_flight)) if allowed is None else allowed
        return min(among, key=lambda worker: (in_flight[worker], processed[worker], worker))


class KvRule(Rule):
    """A rule that knows which blocks each worker's cache holds, from the workers' own events."""

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        self.index: list[set[bytes]] = [set() for _ in range(workers)]

    def overlap(self, worker: int, request: Request) -> int:
        """Number of leading blocks of the prompt that the worker holds."""
        index = self.index[worker]
        return next((at for at, block in enumerate(request.blocks) if block not in index), len(request.blocks))

    def kv_event(self, worker: int, stored: bool, block: bytes) -> None:
        """Update the index."""
        if stored:
            self.index[worker].add(block)
        else:
            self.index[worker].discard(block)


class RuleRouter:
    """Drives a rule with the core's events. block_tokens: known to routers that tokenize or count characters."""

    def __init__(self, rule: Rule, seed: int, block_tokens: int) -> None:
        self._rule = rule
        self._block_tokens = block_tokens
        self._seed = seed
        self._engines: list[Engine] = []
        self._numbers: dict[str, int] = {}
        self._placed: dict[str, tuple[int, Request]] = {}

    def handle(self, event: Event, now: float) -> list[Decision]:
        if isinstance(event, Acquire):
            request = Request(event.ask, self._block_tokens)
            worker = self._rule.choose(request, now)
            if worker is None:
                # without a Retry-After: these routers send none
                reason, cause = "every worker is busy", Reason.PLACES_TAKEN
                return [Refused(event.connection, event.ask.lease_id, Overloaded.code, reason, None, cause)]
            self._placed[event.ask.lease_id] = (worker, request)
            return [Granted(event.connection, Lease(event.ask.lease_id, self._engines[worker]))]
        if isinstance(event, FirstToken):
            self._rule.first_token(*self._placed[event.lease_id])
        elif isinstance(event, Release):
            self._rule.ended(*self._placed.pop(event.end.lease_id))
        elif isinstance(event, StatePublished):
            pool = event.state.pools[0]
            model = event.state.models[0].name
            self._engines = [Engine(each.id, each.url, pool.driver, model, pool.name) for each in pool.replicas]
            self._numbers = {engine.replica_id: number for number, engine in enumerate(self._engines)}
            self._rule.prepare(len(self._engines), random.Random(f"{self._seed} rule"))
        elif isinstance(event, GatewayConnected):
            return [Welcomed(event.connection, 0)]
        elif isinstance(event, ReplicaPolled) and event.load is not None:
            self._rule.polled(self._numbers[event.replica_id], event.load)
        return []

    def next_wakeup(self) -> float | None:
        """These routers hold nothing back."""
        return None

    def kv_event(self, replica_id: str, stored: bool, block: bytes) -> None:
        """An event that an engine published; in the simulation, none is lost or late."""
        self._rule.kv_event(self._numbers[replica_id], stored, block)
