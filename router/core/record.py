"""A bounded record of placements and their reasons, one per decision, completed after the engine's response."""

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
    """Prompt tokens of other requests that it still had to compute."""
    leases: int
    predicted_s: float
    cost: float
    """The policy's own measure; 0 if it has none."""
    max_concurrency: int = 0
    """The limit on its leases at that time."""
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
    """The reason why the request waited, at the last try."""
    candidates: tuple[CandidateRecord, ...] = ()
    chosen: str = ""
    """Id of the chosen replica; empty if the request was refused."""
    prefill: str = ""
    """The replica that computes the prompt; empty if the chosen one does."""
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
    """Time by which the response began later than predicted for the best other candidate; 0 if it was not later. The
    others' real times are unknown."""
    service_class: str = ""
    """See `contracts.service_class.class_name`."""
    share: float = 1.0
    """The tenant's weight."""
    project_share: float = 1.0
    """The project's weight within the tenant."""
    adapter: str = ""
    """The engines' name for the LoRA adapter that the request needs; empty for none."""
    adapter_load: bool = False
    """Whether the chosen replica had to load the adapter."""
    adapter_evicted: str = ""
    """The adapter that gave up its slot; empty for none. evicted_why: the reason for that choice."""
    evicted_why: str = ""
    split: SplitChoice | None = None
    """The choice between the whole pool and a pair, with both costs; None if the pool has no choice."""
    speculation: str = ""
    """The state of drafting and its reason, on which no prediction above depends."""


class RecordBook:
    """The kept records. limit: most records. share: share of the requests to record, chosen by the hash of their id, so
    that a request's attempts stay together."""

    def __init__(self, limit: int, share: float) -> None:
        self._limit = limit
        self.on_decision: Callable[[Record], None] | None = None
        """Called for every recorded decision when it is made."""
        self._below = int(share * 2**64) if limit else 0
        self._records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        """Records by request and lease id."""
        self._leases: dict[str, list[str]] = {}
        """Lease ids by request id."""

    def __len__(self) -> int:
        return len(self._records)

    def wants(self, request_id: str) -> bool:
        """Whether this request's decisions are recorded."""
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
        """Record a grant of this replica. prefill: id of another replica that computes the prompt. adapter_load:
        whether the replica has to load the adapter. evicted: the adapter that gives up its slot for it."""
        if not self.wants(context.ask.request_id):
            return
        candidates = tuple(
            CandidateRecord(
                each.replica.id, each.overlap_blocks, each.uncached_tokens, each.ahead_tokens, each.replica.leases,
                each.predicted_s, each.cost, limit, why,
            )
            for each in context.considered.values()
            for limit, why in (each.replica.limit_and_why(),)
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
        """Record a refusal, of any request. refused: code and reason."""
        if self._limit:
            self._add(waiting, pool, policy, now, refused=refused, retry_after_s=retry_after_s)

    def began(self, request_id: str, lease_id: str, actual_s: float) -> None:
        """Note the response's first token."""
        record = self._records.get((request_id, lease_id))
        if record is not None:
            record.actual_s = actual_s
            others = [each.predicted_s for each in record.candidates if each.replica_id != record.chosen]
            record.regret_s = max(0.0, actual_s - min(others)) if others else 0.0

    def ended(self, request_id: str, lease_id: str, cached_tokens: int, completion_tokens: int) -> None:
        """Note the end of a lease with its usage."""
        record = self._records.get((request_id, lease_id))
        if record is not None:
            record.actual_cached_tokens, record.completion_tokens = cached_tokens, completion_tokens

    def of(self, request_id: str) -> list[Record]:
        """Every recorded decision about a request, oldest first."""
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
