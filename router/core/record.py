"""The reasons for placements: one record per decision, completed when the engine has answered. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import xxhash

from contracts.prefix import HASH_BYTES
from contracts.service_class import class_name
from router.core.adapter_places import Eviction
from router.core.candidates import PlacementContext
from router.core.replica import Replica
from router.core.split import SplitChoice
from router.core.state import QueuedRequest


class CandidateRecord(msgspec.Struct):
    """One replica that was considered."""

    replica_id: str
    overlap_blocks: int
    uncached_tokens: int
    ahead_tokens: int
    """Prompt tokens of others that it still had to compute."""
    leases: int
    predicted_s: float
    cost: float
    """The policy's own measure; 0 where it has none."""
    max_concurrency: int = 0
    """Largest number of leases it might have then."""
    limited_by: str = ""
    """The reason for this limit."""


class Record(msgspec.Struct):
    """One decision about one attempt. Times are durations in seconds."""

    request_id: str
    lease_id: str
    attempt: int
    model: str
    pool: str
    policy: str
    organization_id: str
    prompt_tokens: int
    blocks: int
    ttft_slo_s: float
    queued_s: float
    waited_for: str = ""
    """The reason it waited, at the last try."""
    candidates: tuple[CandidateRecord, ...] = ()
    chosen: str = ""
    """Replica id; empty: refused."""
    prefill: str = ""
    """The replica that computes its prompt; empty: the chosen one does."""
    refused: str = ""
    """Code and reason of a refusal."""
    retry_after_s: float | None = None
    predicted_s: float = 0.0
    actual_s: float | None = None
    """Time to the first token after the grant; None until it is known."""
    predicted_cached_tokens: int = 0
    actual_cached_tokens: int | None = None
    completion_tokens: int | None = None
    regret_s: float | None = None
    """Time by which the response began later than predicted for the best other candidate; 0: no later. The others' real
    times are unknown."""
    service_class: str = ""
    """See `contracts.service_class.class_name`."""
    share: float = 1.0
    """Its tenant's weight; project_share: its project's within that."""
    project_share: float = 1.0
    adapter: str = ""
    """The LoRA adapter that it needs, by the engines' name; empty: none."""
    adapter_load: bool = False
    """The chosen replica did not hold the adapter."""
    adapter_evicted: str = ""
    """The adapter that gave up its slot for it; empty: none. evicted_why: the reason for that choice."""
    evicted_why: str = ""
    split: SplitChoice | None = None
    """The choice between the whole pool and a pair, and the cost of both; None: its pool has no choice."""
    speculation: str = ""
    """The state of drafting, and its reason; no prediction above depends on it."""


class RecordBook:
    """limit: records kept. share: part of the requests remembered, by hash of their id: attempts stay together."""

    def __init__(self, limit: int, share: float) -> None:
        self._limit = limit
        self.on_decision: Callable[[Record], None] | None = None
        """Called for every decision that is remembered, as it is taken."""
        self._below = int(share * 2**64) if limit else 0
        self._records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        """By request and lease id."""
        self._leases: dict[str, list[str]] = {}
        """Lease ids by request id."""

    def __len__(self) -> int:
        return len(self._records)

    def wants(self, request_id: str) -> bool:
        """This request is among the remembered ones."""
        return self._below >= 2**64 or xxhash.xxh3_64_intdigest(request_id.encode()) < self._below

    def placed(
        self,
        context: PlacementContext,
        replica: Replica,
        policy: str,
        prefill: str = "",
        adapter_load: bool = False,
        evicted: Eviction | None = None,
    ) -> None:
        """The ask was granted this replica. prefill: id of another replica that computes the prompt. adapter_load: its
        adapter has to be loaded there, evicted: in the slot of this one."""
        if not self.wants(context.ask.request_id):
            return
        candidates = tuple(
            CandidateRecord(
                one.replica.id, one.overlap_blocks, one.uncached_tokens, one.ahead_tokens, one.replica.leases,
                one.predicted_s, one.cost, limit, why,
            )
            for one in context.considered.values()
            for limit, why in (one.replica.limit_and_why(),)
        )  # fmt: skip
        candidate = context.considered[replica.id]
        self._add(
            context.waiting,
            context.pool.name,
            policy,
            context.now,
            candidates=candidates,
            chosen=replica.id,
            prefill=prefill,
            speculation=context.pool.speculation,
            adapter_load=adapter_load,
            adapter_evicted="" if evicted is None else evicted.name,
            evicted_why="" if evicted is None else evicted.why,
            predicted_s=candidate.predicted_s,
            predicted_cached_tokens=context.ask.prompt_tokens - candidate.uncached_tokens,
        )

    def refused(
        self, waiting: QueuedRequest, pool: str, policy: str, now: float, refused: str, retry_after_s: float
    ) -> None:
        """The ask was refused: always remembered. refused: code and reason."""
        if self._limit:
            self._add(waiting, pool, policy, now, refused=refused, retry_after_s=retry_after_s)

    def began(self, request_id: str, lease_id: str, actual_s: float) -> None:
        """Note that the response's first token came."""
        record = self._records.get((request_id, lease_id))
        if record is not None:
            record.actual_s = actual_s
            others = [one.predicted_s for one in record.candidates if one.replica_id != record.chosen]
            record.regret_s = max(0.0, actual_s - min(others)) if others else 0.0

    def ended(self, request_id: str, lease_id: str, cached_tokens: int, completion_tokens: int) -> None:
        """Its lease ended with this usage."""
        record = self._records.get((request_id, lease_id))
        if record is not None:
            record.actual_cached_tokens, record.completion_tokens = cached_tokens, completion_tokens

    def of(self, request_id: str) -> list[Record]:
        """Every decision remembered about a request, oldest first."""
        return [self._records[request_id, lease_id] for lease_id in self._leases.get(request_id, ())]

    def _add(self, waiting: QueuedRequest, pool: str, policy: str, now: float, **decided: Any) -> None:
        ask = waiting.ask
        record = Record(
            ask.request_id, ask.lease_id, ask.attempt, ask.model, pool, policy, ask.organization_id, ask.prompt_tokens,
            len(ask.prefix_hashes) // HASH_BYTES, waiting.ttft_slo_s, now - waiting.asked_at,
            waiting.why.sentence if waiting.why else "", service_class=class_name(ask.priority), share=ask.share,
            project_share=ask.project_share, adapter=ask.adapter, split=waiting.split, **decided,
        )  # fmt: skip
        if self.on_decision is not None:
            self.on_decision(record)
        key = (record.request_id, record.lease_id)
        if key not in self._records:
            self._leases.setdefault(record.request_id, []).append(record.lease_id)
        self._records[key] = record
        if len(self._records) > self._limit:
            (request_id, lease_id), _ = self._records.popitem(last=False)
            leases = self._leases[request_id]
            leases.remove(lease_id)
            if not leases:
                del self._leases[request_id]
