"""What the pipeline takes from and gives back to, in memory: each keeps books, and each can be made to fail.

They keep the promises of what they stand for (`Limiter`, `Journal`, `RouterClient`): a reservation or a lease that was
cancelled while it was waited for was never taken, a record that was handed over stays written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from contracts.errors import NoEngine
from contracts.generation import Caller, Tier
from contracts.lease import Engine, Lease, LeaseEnd, LeaseRequest
from gateway.http.response import ResponseWriter
from gateway.limits.cost import Cost
from gateway.limits.levels import Levels
from gateway.limits.rate_state import RateState
from gateway.limits.reservations import Reservation
from gateway.metering.journal.records import AttemptKey, Closed, Opened, Placed
from gateway.observability.measurement import Measurement
from gateway.serving.observers import RequestObserver
from gateway.serving.request import InferenceRequest
from gateway.shadow.pair import Pair, PairTexts
from gateway.wire.gap import Gap
from gateway.wire.prepared import Prepared


class Faults:
    """What happens at which step, each once. A step is a method's name here."""

    def __init__(self) -> None:
        self.raises: dict[str, Exception] = {}
        self.calls: dict[str, Callable[[], object]] = {}

    def at(self, step: str) -> None:
        """The step is reached. Raises what it was told to."""
        if (call := self.calls.pop(step, None)) is not None:
            call()
        if (error := self.raises.pop(step, None)) is not None:
            raise error

    async def wait_at(self, step: str) -> None:
        """As `at`, for a step that waits: it ends here when the request was cancelled meanwhile."""
        self.at(step)
        await asyncio.sleep(0)


class FakeLimiter:
    """state: what every reservation tells of its counters."""

    def __init__(self, faults: Faults, state: RateState | None = None) -> None:
        self._faults = faults
        self._state = state
        self.reserved: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()
        self.used: dict[str, tuple[Cost, bool]] = {}
        """By reservation: what was settled, and whether the request itself was given back."""

    async def reserve(self, reservation_id: str, caller: Caller, tier: Tier, levels: Levels, cost: Cost) -> Reservation:
        await self._faults.wait_at("reserve")
        self.reserved[reservation_id] += 1
        return Reservation(reservation_id, caller, tier, cost, self._state)

    async def settle(self, reservation: Reservation, used: Cost, *, refund_request: bool = False) -> None:
        self.settled[reservation.id] += 1
        self.used[reservation.id] = used, refund_request
        await self._faults.wait_at("settle")


class FakeJournal:
    """Refuses as the real one does: nothing is opened or placed while `opened` or `placed` is told to raise."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.opened_keys: Counter[AttemptKey] = Counter()
        self.placed_on: list[str] = []
        self.records: list[Closed] = []

    def opened(self, record: Opened) -> None:
        self._faults.at("opened")
        self.opened_keys[record.key] += 1

    def placed(self, record: Placed) -> None:
        self._faults.at("placed")
        self.placed_on.append(record.replica_id)

    async def closed(self, record: Closed) -> None:
        if record.key in self.opened_keys:  # one that was never opened changes nothing
            self.records.append(record)
        await self._faults.wait_at("closed")


class FakeRouter:
    """Grants the first engine that is not excluded; the one that is named where only that will do."""

    def __init__(self, faults: Faults, engines: tuple[Engine, ...]) -> None:
        self._faults = faults
        self.engines = engines
        self.prefills: tuple[Engine, ...] = ()
        """Of pairs; none: `engines` do it all."""
        self.no_drafts = False
        """Of every lease."""
        self.asks: list[LeaseRequest] = []
        self.granted: Counter[str] = Counter()
        self.ends: list[LeaseEnd] = []
        self.first_tokens: list[str] = []
        self.told_at_s: list[float] = []
        """Times of the reports, by the loop's clock."""

    async def acquire(self, ask: LeaseRequest) -> Lease:
        self.asks.append(ask)
        await self._faults.wait_at("acquire")
        engine = next((one for one in self.engines if one.replica_id not in ask.excluded_replicas), None)
        if ask.idle_replica:
            engine = next(one for one in self.engines if one.replica_id == ask.idle_replica)
        if engine is None:
            raise NoEngine("No engine is left for this model.", retry_after_s=1)
        prefill: Engine | None = None
        if self.prefills:
            prefill = next((one for one in self.prefills if one.replica_id not in ask.excluded_replicas), None)
            if prefill is None:
                raise NoEngine("No engine is left for this model.", retry_after_s=1)
        self.granted[ask.lease_id] += 1
        return Lease(ask.lease_id, engine, prefill=prefill, no_drafts=self.no_drafts)

    def first_token(self, lease_id: str, ttft_s: float, cached_tokens: int) -> None:
        self.first_tokens.append(lease_id)
        self.told_at_s.append(asyncio.get_running_loop().time())

    def release(self, end: LeaseEnd) -> None:
        self.ends.append(end)


class FakePrefixes:
    """Ids of the requests whose prompts engines have had."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def add(
        self, request_id: str, caller: Caller, endpoint: str, prepared: Prepared, *, texts_stored: bool = False
    ) -> None:
        self.seen.append(request_id)


class FakeTraces(RequestObserver):
    """Statuses and codes of the requests that ended, and what was measured."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str | None]] = []
        self.measured: list[Measurement] = []

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        if request.purpose is not None:
            return
        self.seen.append((response.status or 499, response.error_code))
        self.measured.append(request.measurement)


class FakeTexts:
    """What is to be stored: prefix, suffix, completion."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, str | None]] = []

    def add(self, request_id: str, caller: Caller, gap: Gap, completion: str | None) -> None:
        self.kept.append((gap.prefix, gap.suffix, completion))


class FakePairs:
    """Pairs, and their texts."""

    def __init__(self) -> None:
        self.kept: list[Pair] = []
        self.texts: list[PairTexts | None] = []

    def add(self, pair: Pair, texts: PairTexts | None) -> None:
        self.kept.append(pair)
        self.texts.append(texts)
